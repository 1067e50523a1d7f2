#include "cp/simulate/links.h"

#include "base/error.h"

namespace longspan::simulate {

Links::Links(Network& network, const LinkCost& cost, const Topology& topology)
    : network_(network), cost_(cost), topology_(topology) {
  LONGSPAN_CHECK_INPUT(topology.nodes == 1 || cost.interface_bytes_per_s > 0,
                       "the machine has no links between nodes; give --topology 1x{}", topology.ranks());
  for (int rank = 0; rank < topology.ranks(); ++rank) {
    ports_.push_back(add(cost.port_bytes_per_s));
    beside_.push_back(add(cost.beside_bytes_per_s));
  }
  if (topology.nodes == 1) return;
  interfaces_ = (topology.devices + cost.ranks_per_interface - 1) / cost.ranks_per_interface;
  for (int i = 0; i < topology.nodes * interfaces_; ++i)
    interfaces_of_.push_back(add(cost.interface_bytes_per_s));
  for (int node = 0; node < topology.nodes; ++node)
    spine_of_node_.push_back(add(cost.interface_bytes_per_s * interfaces_ / cost.oversubscription));
}

Links::BothWays Links::add(double bytes_per_s) {
  const int32_t out = network_.add_link(bytes_per_s);
  return {out, network_.add_link(bytes_per_s)};
}

int32_t Links::rail_of(int32_t rank) const {
  return rank % topology_.devices / cost_.ranks_per_interface;
}

int32_t Links::interface_of(int32_t rank) const {
  return rank / topology_.devices * interfaces_ + rail_of(rank);
}

std::vector<int32_t> Links::of(int32_t src, int32_t dst, bool beside) const {
  const auto at = [](const std::vector<BothWays>& list, int32_t i) { return list[static_cast<size_t>(i)]; };
  std::vector<int32_t> links;
  if (within_node(src, dst)) {
    links = {at(ports_, src).out, at(ports_, dst).in};
  } else {
    links = {at(interfaces_of_, interface_of(src)).out, at(interfaces_of_, interface_of(dst)).in};
    if (cost_.oversubscription > 1 && rail_of(src) != rail_of(dst)) {
      links.push_back(at(spine_of_node_, src / topology_.devices).out);
      links.push_back(at(spine_of_node_, dst / topology_.devices).in);
    }
  }
  if (beside) {  // also between nodes: what a GPU sends leaves it through its own port
    links.push_back(at(beside_, src).out);
    links.push_back(at(beside_, dst).in);
  }
  if (cost_.flow_bytes_per_s > 0) links.push_back(network_.add_link(cost_.flow_bytes_per_s));
  return links;
}

double Links::latency_s(int32_t src, int32_t dst) const {
  return within_node(src, dst) ? cost_.latency_s : cost_.interface_latency_s;
}

}  // namespace longspan::simulate
