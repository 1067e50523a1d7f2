// The links of a cluster: which of them a flow between two ranks uses.
#pragma once

#include <vector>

#include "cp/simulate/cluster.h"
#include "cp/simulate/network.h"
#include "longspan/parallel.h"

namespace longspan::simulate {

class Links {
 public:
  // Adds the links of a topology to the network.
  Links(Network& network, const LinkCost& cost, const Topology& topology);

  // `beside`: a kernel computes meanwhile.
  std::vector<int32_t> of(int32_t src, int32_t dst, bool beside) const;
  double latency_s(int32_t src, int32_t dst) const;

 private:
  bool within_node(int32_t src, int32_t dst) const {
    return src / topology_.devices == dst / topology_.devices;
  }
  int32_t interface_of(int32_t rank) const;  // over all nodes
  int32_t rail_of(int32_t rank) const;       // within its node

  struct BothWays {
    int32_t out = 0, in = 0;
  };
  BothWays add(double bytes_per_s);

  Network& network_;
  const LinkCost cost_;
  const Topology topology_;
  int interfaces_ = 1;                                   // of a node
  std::vector<BothWays> ports_, beside_;                 // by rank
  std::vector<BothWays> interfaces_of_, spine_of_node_;  // by interface, by node
};

}  // namespace longspan::simulate
