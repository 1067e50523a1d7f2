#include "bench/simulate/machine_file.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/input_file.h"
#include "base/printable.h"

namespace longspan::bench {
namespace {

using record::Json;

constexpr std::string_view kOrigins[] = {"measured", "typed in", "default"};

// Reads one object of the file; `at` is its path, for messages and figures. Remembers the keys it was asked
// for.
class Reader {
 public:
  Reader(const Json& json, std::string at, std::vector<Figure>& figures)
      : json_(json), at_(std::move(at)), figures_(figures) {
    LONGSPAN_CHECK_INPUT(json.is_object(), "{} is a JSON {}; it must be an object", shown(),
                         json.type_name());
  }

  Reader object(const std::string& key) const {
    keys_.insert(key);
    LONGSPAN_CHECK_INPUT(json_.contains(key), "{} is missing", path(key));
    return {json_.at(key), path(key), figures_};
  }

  template <class Visit>
  void each(const std::string& key, Visit visit) const {
    const Reader all = object(key);
    for (const auto& [name, value] : all.json_.items()) {
      LONGSPAN_CHECK_INPUT(!name.empty() && printable(name) == name,
                           "{} has the key '{}'; a name must not be empty nor hold control characters",
                           path(key), printable(name));
      visit(name, all.object(name));
    }
  }

  // A figure: {"value": 1.5, "origin": "measured", "source": "...", "residual": 0.02}.
  void figure(const std::string& key, double& value, double least = 0, double most = 1e18) const {
    const Reader at = object(key);
    Figure figure{path(key), at.text("origin"), at.text("source"), at.number("value"), {}};
    LONGSPAN_CHECK_INPUT(
        std::find(std::begin(kOrigins), std::end(kOrigins), figure.origin) != std::end(kOrigins),
        "{} is '{}'; it must be one of {}", at.path("origin"), figure.origin, fmt::join(kOrigins, ", "));
    LONGSPAN_CHECK_INPUT(figure.value >= least && figure.value <= most, "{} is {}; it must be from {} to {}",
                         at.path("value"), figure.value, least, most);
    if (at.has("residual")) figure.residual = at.number("residual");
    at.refuse_other_keys();
    value = figure.value;
    figures_.push_back(std::move(figure));
  }

  double number(const std::string& key) const {
    keys_.insert(key);
    LONGSPAN_CHECK_INPUT(json_.contains(key) && json_.at(key).is_number(), "{} must be a number", path(key));
    return json_.at(key).get<double>();
  }
  const Json& list(const std::string& key) const {
    keys_.insert(key);
    LONGSPAN_CHECK_INPUT(json_.contains(key) && json_.at(key).is_array() && !json_.at(key).empty(),
                         "{} must be a list", path(key));
    return json_.at(key);
  }
  template <class T>
  void whole(const std::string& key, T& value) const {
    const double given = number(key);
    LONGSPAN_CHECK_INPUT(given >= 1 && given <= 1 << 20 && given == std::floor(given),
                         "{} is {}; it must be a whole number from 1 to {}", path(key), given, 1 << 20);
    value = static_cast<T>(given);
  }
  std::string text(const std::string& key) const {
    keys_.insert(key);
    LONGSPAN_CHECK_INPUT(json_.contains(key) && json_.at(key).is_string(), "{} must be a text", path(key));
    return json_.at(key).get<std::string>();
  }
  std::string name(const std::string& key) const {
    std::string name = text(key);
    LONGSPAN_CHECK_INPUT(!name.empty() && printable(name) == name,
                         "{} is '{}'; it must not be empty nor hold control characters", path(key),
                         printable(name));
    return name;
  }
  bool has(const std::string& key) const {
    keys_.insert(key);
    return json_.contains(key);
  }
  bool flag(const std::string& key) const {
    keys_.insert(key);
    LONGSPAN_CHECK_INPUT(json_.contains(key) && json_.at(key).is_boolean(), "{} must be true or false",
                         path(key));
    return json_.at(key).get<bool>();
  }

  std::string path(const std::string& key) const { return at_.empty() ? key : at_ + "." + key; }

  // A misspelt key would leave a preset in place.
  void refuse_other_keys() const {
    for (const auto& [key, value] : json_.items())
      LONGSPAN_CHECK_INPUT(keys_.contains(key), "{} is unknown; {} may have {}", printable(path(key)),
                           shown(), fmt::join(keys_, ", "));
  }

 private:
  std::string shown() const { return at_.empty() ? "the machine" : at_; }

  const Json& json_;
  const std::string at_;
  std::vector<Figure>& figures_;
  mutable std::set<std::string> keys_;
};

// By head_dim, each one of those that the kernel takes.
std::map<int64_t, double> factors_from(const Reader& json, const std::vector<int64_t>& head_dims) {
  std::map<int64_t, double> factors;
  const std::string key = "head_dim_factors";
  if (!json.has(key)) return factors;
  json.each(key, [&](const std::string& name, const Reader&) {
    const auto known = std::find_if(head_dims.begin(), head_dims.end(),
                                    [&](int64_t head_dim) { return std::to_string(head_dim) == name; });
    LONGSPAN_CHECK_INPUT(known != head_dims.end(), "{} has {}; it must be one of head_dims, {}",
                         json.path(key), name, fmt::join(head_dims, ", "));
    json.object(key).figure(name, factors[*known], 0.01, 100);
  });
  return factors;
}

KernelPassCost pass_from(const Reader& json) {
  KernelPassCost pass;
  json.whole("tile_rows", pass.tile_rows);
  json.whole("tile_keys", pass.tile_keys);
  json.whole("most_pack", pass.most_pack);
  json.figure("tile_s", pass.tile_s);
  json.figure("row_tile_s", pass.row_tile_s);
  json.figure("key_tile_s", pass.key_tile_s);
  json.figure("launch_s", pass.launch_s);
  json.figure("tail", pass.tail);
  json.refuse_other_keys();
  return pass;
}

std::vector<DType> dtypes_from(const Reader& json) {
  std::vector<DType> list;
  for (const Json& each : json.list("dtypes")) {
    LONGSPAN_CHECK_INPUT(each.is_string(), "{} must be a list of texts", json.path("dtypes"));
    try {
      list.push_back(dtype_from_name(each.get<std::string>()));
    } catch (const Error& error) {
      LONGSPAN_CHECK_INPUT(false, "{}: {}", json.path("dtypes"), error.what());
    }
  }
  return list;
}

std::vector<int64_t> head_dims_from(const Reader& json) {
  std::vector<int64_t> list;
  for (const Json& each : json.list("head_dims")) {
    LONGSPAN_CHECK_INPUT(each.is_number_unsigned() && each > 0, "{} must be a list of whole numbers",
                         json.path("head_dims"));
    list.push_back(each.get<int64_t>());
  }
  return list;
}

constexpr double kLeastRate = 1;  // bytes/s

simulate::LinkCost links_from(const Reader& json) {
  simulate::LinkCost links;
  links.takes_rows = json.flag("takes_rows");
  links.receiver_copies = json.has("receiver_copies") && json.flag("receiver_copies");
  json.figure("port_bytes_per_s", links.port_bytes_per_s, kLeastRate);
  json.figure("beside_bytes_per_s", links.beside_bytes_per_s, kLeastRate);
  json.figure("latency_s", links.latency_s);
  json.figure("kernel_slowdown", links.kernel_slowdown);
  LONGSPAN_CHECK_INPUT(links.kernel_slowdown < 1, "{} is {}; it must be less than 1",
                       json.path("kernel_slowdown.value"), links.kernel_slowdown);
  if (json.has("flow_bytes_per_s")) json.figure("flow_bytes_per_s", links.flow_bytes_per_s, kLeastRate);
  if (json.has("interface_bytes_per_s")) {
    json.figure("interface_bytes_per_s", links.interface_bytes_per_s, kLeastRate);
    json.figure("interface_latency_s", links.interface_latency_s);
    json.whole("ranks_per_interface", links.ranks_per_interface);
    json.figure("oversubscription", links.oversubscription, 1);
  }
  json.refuse_other_keys();
  return links;
}

template <class T>
std::string names_of(const std::map<std::string, T>& map) {
  std::vector<std::string> names;
  names.reserve(map.size());
  for (const auto& [name, value] : map) names.push_back(name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

Support MachineKernel::takes(const Case& c) const {
  const int64_t head_dim_v = c.head_dim_v == 0 ? c.head_dim : c.head_dim_v;
  const bool priced = std::find(dtypes.begin(), dtypes.end(), c.dtype) != dtypes.end() &&
                      std::find(head_dims.begin(), head_dims.end(), c.head_dim) != head_dims.end() &&
                      head_dim_v == c.head_dim;
  if (priced) return {};
  std::vector<std::string_view> names;
  for (const DType each : dtypes) names.push_back(name_of(each));
  const std::string asked = c.head_dim == head_dim_v
                                ? fmt::format("head_dim {}", c.head_dim)
                                : fmt::format("head_dim {} with head_dim_v {}", c.head_dim, head_dim_v);
  return {fmt::format("is priced for {} and head_dim {}, the same of v, not for {} and {}",
                      fmt::join(names, ", "), fmt::join(head_dims, ", "), name_of(c.dtype), asked)};
}

KernelCost MachineKernel::cost_of(int64_t head_dim) const {
  KernelCost scaled = cost;
  const auto scale = [&](KernelPassCost& pass, const std::map<int64_t, double>& factors) {
    const auto factor = factors.find(head_dim);
    if (factor == factors.end()) return;
    for (double* time_s : {&pass.tile_s, &pass.row_tile_s, &pass.key_tile_s}) *time_s *= factor->second;
  };
  scale(scaled.forward, forward_factors);
  scale(scaled.backward, backward_factors);
  return scaled;
}

bool Machine::measured(const std::string& transport) const {
  const std::string own = "links." + transport + ".";
  return std::all_of(figures.begin(), figures.end(), [&](const Figure& f) {
    return f.origin == "measured" || (f.name.starts_with("links.") && !f.name.starts_with(own));
  });
}

simulate::Cluster Machine::cluster(const Case& c, const std::string& transport) const {
  const auto of_kernel = kernels.find(c.kernel);
  LONGSPAN_CHECK_INPUT(of_kernel != kernels.end(), "{} has no times of the kernel {}, only of {}", name,
                       c.kernel, names_of(kernels));
  const Support support = of_kernel->second.takes(c);
  LONGSPAN_CHECK_INPUT(support, "{} {} on {}", c.kernel, support.reason, name);
  const auto of_transport = links.find(transport);
  LONGSPAN_CHECK_INPUT(of_transport != links.end(), "{} has no links for the transport {}, only for {}", name,
                       transport, names_of(links));
  return {of_kernel->second.cost_of(c.head_dim), clock, memory, of_transport->second};
}

Machine machine_from_json(const Json& json) {
  Machine machine;
  const Reader file(json, "", machine.figures);
  machine.name = file.name("name");
  file.whole("gpus_per_node", machine.gpus_per_node);
  file.each("kernels", [&](const std::string& name, const Reader& kernel) {
    MachineKernel& described = machine.kernels[name];
    KernelCost& cost = described.cost;
    kernel.whole("units", cost.units);
    described.dtypes = dtypes_from(kernel);
    described.head_dims = head_dims_from(kernel);
    const auto read_pass = [&](const char* key, KernelPassCost& pass, std::map<int64_t, double>& factors) {
      const Reader of_pass = kernel.object(key);
      factors = factors_from(of_pass, described.head_dims);
      pass = pass_from(of_pass);
    };
    read_pass("forward", cost.forward, described.forward_factors);
    read_pass("backward", cost.backward, described.backward_factors);
    kernel.refuse_other_keys();
  });
  const Reader clock = file.object("clock"), memory = file.object("memory");
  clock.figure("burst", machine.clock.burst, 0.01, 100);
  clock.figure("sustained", machine.clock.sustained, 0.01, 100);
  clock.figure("settle_s", machine.clock.settle_s, 1e-9);
  memory.figure("bytes_per_s", machine.memory.bytes_per_s, kLeastRate);
  memory.figure("operation_s", machine.memory.operation_s);
  if (memory.has("partial_bytes_per_s"))
    memory.figure("partial_bytes_per_s", machine.memory.partial_bytes_per_s, kLeastRate);
  clock.refuse_other_keys();
  memory.refuse_other_keys();
  file.each("links", [&](const std::string& transport, const Reader& links) {
    machine.links[transport] = links_from(links);
  });
  file.refuse_other_keys();
  LONGSPAN_CHECK_INPUT(!machine.kernels.empty() && !machine.links.empty(),
                       "kernels and links must each describe at least one");
  return machine;
}

Machine read_machine(const std::string& path) {
  try {
    return machine_from_json(record::parse_json(read_input_file(path, kMachineFile)));
  } catch (const Error& error) {
    LONGSPAN_CHECK_INPUT(error.kind() != ErrorKind::kInput, "machine file {}: {}", path, error.what());
    throw;
  }
}

}  // namespace longspan::bench
