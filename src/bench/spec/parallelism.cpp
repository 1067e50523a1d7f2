#include "bench/spec/parallelism.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "base/error.h"
#include "bench/spec/values.h"
#include "comm/mpi.h"

namespace longspan::bench {
namespace {

constexpr int64_t kMaxRanks = 4096;

std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  for (const Strategy& strategy : strategies()) names.emplace_back(strategy.name);
  return names;
}

int parse_ranks(std::string_view text) {
  return static_cast<int>(parse_count(text, 1, kMaxRanks));
}

// "2x8": nodes and devices.
Topology parse_topology(std::string_view text) {
  Topology topology;
  const size_t cross = text.find('x');
  try {
    LONGSPAN_CHECK_INPUT(cross != std::string_view::npos, "no cross");
    topology.nodes = parse_ranks(text.substr(0, cross));
    topology.devices = parse_ranks(text.substr(cross + 1));
    LONGSPAN_CHECK_INPUT(topology.ranks() <= kMaxRanks, "too many");
  } catch (const Error&) {
    LONGSPAN_CHECK_INPUT(false, "'{}': must be NODESxDEVICES, such as 2x8, of at most {} ranks", text,
                         kMaxRanks);
  }
  return topology;
}

template <class Parse>
auto listed(std::string_view text, Parse parse) {
  try {
    return parse(text);
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("'{}': {}", text, error.what()), error.file(), error.line(),
                error.expression());
  }
}

}  // namespace

std::string_view name_of(Transport transport) {
  return transport == Transport::kThreads ? "threads" : transport == Transport::kNccl ? "nccl" : "mpi";
}

Transport transport_from_name(std::string_view name) {
  for (const Transport transport : {Transport::kThreads, Transport::kNccl, Transport::kMpi}) {
    if (name == name_of(transport)) return transport;
  }
  LONGSPAN_CHECK_INPUT(false, "transport '{}' is unknown; there are threads, nccl, mpi", name);
  return {};
}

Topology Parallelism::topology() const {
  return nodes == 0 ? Topology{1, ranks} : Topology{nodes, ranks / nodes};
}

void set_parallelism(Parallelism& p, std::string_view axis, std::string_view text) {
  if (axis == "strategy") {
    const std::vector<std::string> names = strategy_names();
    LONGSPAN_CHECK_INPUT(std::find(names.begin(), names.end(), text) != names.end(),
                         "'{}' is unknown{}; the strategies are {} (or 'all')", text,
                         did_you_mean(text, names), fmt::join(names, ", "));
    p.strategy = text;
  } else if (axis == "ranks") {
    const int ranks = parse_ranks(text);
    LONGSPAN_CHECK_INPUT(p.nodes == 0 || p.ranks == ranks, "'{}': the topology has {} ranks", text, p.ranks);
    p.ranks = ranks;
  } else if (axis == "topology") {
    const Topology topology = parse_topology(text);
    LONGSPAN_CHECK_INPUT(p.ranks == 0 || p.ranks == topology.ranks(),
                         "'{}': has {} ranks, but {} are asked for", text, topology.ranks(), p.ranks);
    p.nodes = topology.nodes;
    p.ranks = topology.ranks();
  } else if (axis == "ulysses") {
    p.options.ulysses_degree = parse_ranks(text);
  } else if (axis == "inner_ring") {
    p.options.inner_ring = parse_ranks(text);
  } else if (axis == "placement") {
    p.options.placement = listed(text, placement_from_name);
  } else if (axis == "sharding") {
    p.options.sharding = listed(text, sharding_from_name);
  } else if (axis == "skip") {
    const bool yes = text == "yes" || text == "true";
    LONGSPAN_CHECK_INPUT(yes || text == "no" || text == "false", "'{}': must be yes or no", text);
    p.options.skip_unneeded = yes;
  } else if (axis == "transport") {
    p.transport = listed(text, transport_from_name);
  } else {
    LONGSPAN_CHECK(false, "'{}' is no axis of parallelism", axis);
  }
}

std::string get_parallelism(const Parallelism& p, std::string_view axis) {
  if (!p) return "";
  const auto number = [](int value) { return value == 0 ? "" : fmt::format("{}", value); };
  if (axis == "strategy") return p.strategy;
  if (axis == "ranks") return number(p.ranks);
  if (axis == "topology") return p.nodes <= 1 ? "" : fmt::format("{}x{}", p.nodes, p.ranks / p.nodes);
  if (axis == "ulysses") return number(p.options.ulysses_degree);
  if (axis == "inner_ring") return number(p.options.inner_ring);
  if (axis == "placement") return is_hybrid(p.strategy) ? std::string(name_of(p.options.placement)) : "";
  if (axis == "sharding") return std::string(name_of(p.options.sharding));
  if (axis == "skip") return p.options.skip_unneeded ? "yes" : "no";
  if (axis == "transport") return std::string(name_of(p.transport));
  LONGSPAN_CHECK(false, "'{}' is no axis of parallelism", axis);
  return "";
}

void add_to_json(const Parallelism& p, nlohmann::json& json) {
  if (!p) return;
  json["strategy"] = p.strategy;
  json["ranks"] = p.ranks;
  if (p.nodes > 1) json["nodes"] = p.nodes;
  if (p.options.ulysses_degree != 0) json["ulysses"] = p.options.ulysses_degree;
  if (p.options.inner_ring != 0) json["inner_ring"] = p.options.inner_ring;
  if (is_hybrid(p.strategy)) json["placement"] = name_of(p.options.placement);
  if (p.options.sharding != Sharding::kAuto) json["sharding"] = name_of(p.options.sharding);
  if (!p.options.skip_unneeded) json["skip"] = "no";
  if (p.transport != Transport::kThreads) json["transport"] = name_of(p.transport);
}

Parallelism parallelism_from_json(const nlohmann::json& json) {
  Parallelism p;
  if (!json.contains("strategy")) return p;
  for (const char* axis :
       {"strategy", "ranks", "ulysses", "inner_ring", "placement", "sharding", "skip", "transport"}) {
    const auto it = json.find(axis);
    if (it == json.end()) continue;
    LONGSPAN_CHECK_INPUT(it->is_string() || it->is_number_integer(),
                         "the case's key '{}' has a value of another kind than expected", axis);
    set_parallelism(p, axis, it->is_string() ? it->get<std::string>() : it->dump());
  }
  if (const auto it = json.find("nodes"); it != json.end()) {
    const int64_t nodes = it->is_number_integer() ? it->get<int64_t>() : 0;
    LONGSPAN_CHECK_INPUT(nodes >= 1 && nodes <= p.ranks && p.ranks % nodes == 0,
                         "the case's nodes {} do not divide its {} ranks", it->dump(), p.ranks);
    p.nodes = static_cast<int>(nodes);
  }
  LONGSPAN_CHECK_INPUT(p.ranks > 0, "the case lacks the key 'ranks'");
  return p;
}

std::optional<Launch> launch_of_processes(const Parallelism& p) {
  if (!p || p.transport == Transport::kThreads) return std::nullopt;
  if (p.transport == Transport::kMpi && !launched_by_mpi()) return std::nullopt;
  std::optional<Launch> launch = launch_from_environment();
  const bool alone = launch && launch->ranks == 1;
  return alone && p.transport == Transport::kNccl ? std::nullopt : launch;
}

Parallelism normalised(Parallelism p, int64_t heads_q, int64_t heads_kv) {
  const bool anything_else = !(p == Parallelism{});
  if (!p) {
    LONGSPAN_CHECK_INPUT(!anything_else,
                         "a strategy is missing: ranks and what else spreads a case needs --strategy ({})",
                         fmt::join(strategy_names(), ", "));
    return p;
  }
  LONGSPAN_CHECK_INPUT(p.ranks > 0, "strategy {} needs a number of ranks: --ranks 4", p.strategy);
  if (p.nodes == 1) p.nodes = 0;
  const Strategy& strategy = strategy_from_name(p.strategy);
  const bool hybrid = is_hybrid(p.strategy);
  if (!hybrid) {
    p.options.ulysses_degree = 0;
    p.options.placement = Placement::kHeadFirst;
  }
  if (p.strategy != "loongtrain") p.options.inner_ring = 0;
  Problem problem;
  problem.heads_q = heads_q;
  problem.heads_kv = heads_kv;
  if (hybrid && strategy.supports(problem, p.topology(), p.options)) {
    const StrategyOptions full = resolved(strategy, problem, p.topology(), p.options);
    p.options.ulysses_degree = full.ulysses_degree;
    if (p.strategy == "loongtrain") p.options.inner_ring = full.inner_ring;
  }
  return p;
}

std::string describe(const Parallelism& p) {
  if (!p) return "";
  std::string text = fmt::format("{} on {} ranks", p.strategy, p.ranks);
  if (p.nodes > 1) text += fmt::format(" of {} nodes", p.nodes);
  if (p.options.ulysses_degree > 0) text += fmt::format(", ulysses {}", p.options.ulysses_degree);
  if (p.options.inner_ring > 0) text += fmt::format(", inner ring {}", p.options.inner_ring);
  if (p.options.placement != Placement::kHeadFirst) text += fmt::format(", {}", name_of(p.options.placement));
  if (p.options.sharding != Sharding::kAuto) text += fmt::format(", {}", name_of(p.options.sharding));
  if (!p.options.skip_unneeded) text += ", nothing skipped";
  if (p.transport != Transport::kThreads) text += fmt::format(", over {}", name_of(p.transport));
  return text;
}

}  // namespace longspan::bench
