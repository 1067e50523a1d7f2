// The axes of context parallelism, their JSON form, and normalisation.
#include "bench/spec/parallelism.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/nearest.h"
#include "bench/spec/option_json.h"
#include "bench/spec/values.h"
#include "comm/mpi.h"
#include "longspan/parallel.h"

namespace longspan::bench {
namespace {

constexpr int64_t kMaxRanks = 4096;

int parse_ranks(std::string_view text) {
  return static_cast<int>(parse_count(text, 1, kMaxRanks));
}

// "2x8": 2 nodes with 8 devices each.
Topology parse_topology(std::string_view text) {
  Topology topology;
  const size_t cross = text.find('x');
  try {
    LONGSPAN_CHECK_INPUT(cross != std::string_view::npos, "no cross");
    topology.nodes = parse_ranks(text.substr(0, cross));
    topology.devices = parse_ranks(text.substr(cross + 1));
    LONGSPAN_CHECK_INPUT(topology.ranks() <= kMaxRanks, "too many");
  } catch (const Error&) {
    LONGSPAN_CHECK_INPUT(false, "'{}': must be NODESxDEVICES, such as 2x8, with at most {} ranks", text,
                         kMaxRanks);
  }
  return topology;
}

void set_strategy(Parallelism& p, std::string_view text) {
  const std::vector<std::string> names = strategy_names();
  LONGSPAN_CHECK_INPUT(std::find(names.begin(), names.end(), text) != names.end(),
                       "'{}' is unknown{}; the strategies are {} (or 'all')", text, did_you_mean(text, names),
                       fmt::join(names, ", "));
  p.strategy = text;
}

void set_ranks(Parallelism& p, std::string_view text) {
  const int ranks = parse_ranks(text);
  LONGSPAN_CHECK_INPUT(p.nodes == 0 || p.ranks == ranks, "'{}': the topology has {} ranks", text, p.ranks);
  p.ranks = ranks;
}

void set_topology(Parallelism& p, std::string_view text) {
  const Topology topology = parse_topology(text);
  LONGSPAN_CHECK_INPUT(p.ranks == 0 || p.ranks == topology.ranks(),
                       "'{}': is a topology of {} ranks, but ranks is {}", text, topology.ranks(), p.ranks);
  p.nodes = topology.nodes;
  p.ranks = topology.ranks();
}

// The options of the case's strategy; none without a strategy.
std::span<const OptionSpec> options_of(const Parallelism& p) {
  if (!p) return {};
  return strategy_from_name(p.strategy).options;
}

ParallelAxis axis_of(const TableOption& option) {
  const OptionSpec& spec = option.spec;
  return {
      .name = spec.name,
      .help = option.help(),
      .set = [&spec](Parallelism& p, std::string_view text) { p.options.set(spec.name, spec.parse(text)); },
      .get = [&spec](const Parallelism& p) -> std::string {
        if (const OptionValue* value = p.options.find(spec.name)) return to_text(*value);
        const OptionSpec* read = find_option(options_of(p), spec.name);
        return read == nullptr ? "" : std::string(read->preset);
      },
      .comma_in_value = spec.kind == OptionKind::kTokenPair,
      .numeric = spec.numeric()};
}

std::vector<ParallelAxis> make_parallel_axes() {
  std::vector<ParallelAxis> axes = {
      {.name = "strategy",
       .help = "context-parallel strategies, or 'all'",
       .set = set_strategy,
       .get = [](const Parallelism& p) { return p.strategy; }},
      {.name = "ranks",
       .help = "number of ranks to spread the case over",
       .set = set_ranks,
       .get = [](const Parallelism& p) { return p && p.ranks > 0 ? fmt::format("{}", p.ranks) : ""; },
       .numeric = true},
      {.name = "topology",
       .help = "NODESxDEVICES, such as 2x8, if the ranks are on several nodes",
       .set = set_topology,
       .get = [](const Parallelism& p) {
         return p && p.nodes > 1 ? fmt::format("{}x{}", p.nodes, p.ranks / p.nodes) : "";
       }}};
  for (const TableOption& option : strategy_options()) axes.push_back(axis_of(option));
  axes.push_back(
      {.name = "transport",
       .help = "how data moves between ranks: threads, nccl, mpi [threads]",
       .set = [](Parallelism& p, std::string_view text) { p.transport = transport_from_name(text); },
       .get = [](const Parallelism& p) { return std::string(p ? name_of(p.transport) : ""); }});
  return axes;
}

}  // namespace

std::string_view name_of(Transport transport) {
  return transport == Transport::kThreads ? "threads" : transport == Transport::kNccl ? "nccl" : "mpi";
}

Transport transport_from_name(std::string_view name) {
  for (const Transport transport : {Transport::kThreads, Transport::kNccl, Transport::kMpi}) {
    if (name == name_of(transport)) return transport;
  }
  LONGSPAN_CHECK_INPUT(false, "'{}': must be one of threads, nccl, mpi", name);
  return {};
}

Topology Parallelism::topology() const {
  return nodes == 0 ? Topology{1, ranks} : Topology{nodes, ranks / nodes};
}

std::span<const ParallelAxis> parallel_axes() {
  static const std::vector<ParallelAxis> all = make_parallel_axes();
  return all;
}

void add_to_json(const Parallelism& p, nlohmann::json& json) {
  if (!p) return;
  json["strategy"] = p.strategy;
  json["ranks"] = p.ranks;
  if (p.nodes > 1) json["nodes"] = p.nodes;
  for (const OptionSpec& option : options_of(p)) {
    if (const OptionValue* value = p.options.find(option.name))
      json[std::string(option.name)] = to_json(*value);
  }
  if (p.transport != Transport::kThreads) json["transport"] = name_of(p.transport);
}

Parallelism parallelism_from_json(const nlohmann::json& json) {
  Parallelism p;
  if (!json.contains("strategy")) return p;
  const auto text_of = [&](const char* key) {
    const auto it = json.find(key);
    if (it == json.end()) return std::string();
    LONGSPAN_CHECK_INPUT(it->is_string() || it->is_number_integer(),
                         "the case's key '{}' has a value of the wrong type", key);
    return it->is_string() ? it->get<std::string>() : it->dump();
  };
  set_strategy(p, text_of("strategy"));
  LONGSPAN_CHECK_INPUT(json.contains("ranks"), "the case lacks the key 'ranks'");
  set_ranks(p, text_of("ranks"));
  for (const TableOption& option : strategy_options()) {
    if (const auto it = json.find(option.spec.name); it != json.end())
      p.options.set(option.spec.name, option_from_json(option.spec, *it));
  }
  if (json.contains("transport")) p.transport = transport_from_name(text_of("transport"));
  if (const auto it = json.find("nodes"); it != json.end()) {
    const int64_t nodes = it->is_number_integer() ? it->get<int64_t>() : 0;
    LONGSPAN_CHECK_INPUT(nodes >= 1 && nodes <= p.ranks && p.ranks % nodes == 0,
                         "the case's nodes {} do not divide its {} ranks", it->dump(), p.ranks);
    p.nodes = static_cast<int>(nodes);
  }
  return p;
}

std::optional<Launch> launch_of_processes(const Parallelism& p) {
  if (!p || p.transport == Transport::kThreads) return std::nullopt;
  if (p.transport == Transport::kMpi && !launched_by_mpi()) return std::nullopt;
  std::optional<Launch> launch = launch_from_environment();
  const bool alone = launch && launch->ranks == 1;
  return alone && p.transport == Transport::kNccl ? std::nullopt : launch;
}

void expect_one_process(std::string_view reason) {
  // In a Slurm job, rank 0 may be the batch script itself.
  const std::optional<Launch> launch = launch_from_environment();
  LONGSPAN_CHECK_INPUT(
      !launch || launch->ranks == 1 || (launch->launcher == "Slurm" && launch->rank == 0),
      "{} started {} processes, but {}; add --transport mpi on the CPU, or --transport nccl on GPUs",
      launch->launcher, launch->ranks, reason);
}

Parallelism normalised(Parallelism p, int64_t heads_q, int64_t heads_kv) {
  const bool anything_else = !(p == Parallelism{});
  if (!p) {
    LONGSPAN_CHECK_INPUT(
        !anything_else,
        "a strategy is missing: ranks and other options of context parallelism need --strategy ({})",
        fmt::join(strategy_names(), ", "));
    return p;
  }
  LONGSPAN_CHECK_INPUT(p.ranks > 0, "strategy {} needs the number of ranks, such as --ranks 4", p.strategy);
  if (p.nodes == 1) p.nodes = 0;
  const Strategy& strategy = strategy_from_name(p.strategy);
  p.options.keep(strategy.options);
  for (const OptionSpec& option : strategy.options) {
    if (option.preset.empty()) continue;
    const OptionValue preset = option.parse(option.preset);
    const OptionValue* given = p.options.find(option.name);
    if (option.always_in_case && given == nullptr) p.options.set(option.name, preset);
    if (!option.always_in_case && given != nullptr && *given == preset) p.options.erase(option.name);
  }
  Problem problem;
  problem.heads_q = heads_q;
  problem.heads_kv = heads_kv;
  const bool any_resolved = std::any_of(strategy.options.begin(), strategy.options.end(),
                                        [](const OptionSpec& option) { return option.always_in_case; });
  if (!any_resolved || !strategy.supports(problem, p.topology(), p.options)) return p;
  const StrategyOptions full = strategy.resolve(problem, p.topology(), p.options);
  for (const OptionSpec& option : strategy.options) {
    if (option.always_in_case) p.options.set(option.name, *full.value_of(option));
  }
  return p;
}

std::string describe(const Parallelism& p) {
  if (!p) return "";
  std::string text = fmt::format("{} on {} ranks", p.strategy, p.ranks);
  if (p.nodes > 1) text += fmt::format(" of {} nodes", p.nodes);
  for (const OptionSpec& option : options_of(p)) {
    const OptionValue* value = p.options.find(option.name);
    if (value == nullptr || to_text(*value) == option.preset) continue;
    std::string name(option.name);
    std::replace(name.begin(), name.end(), '_', ' ');
    text += ", ";
    if (option.kind != OptionKind::kChoice) text += name + " ";
    text += to_text(*value);
  }
  if (p.transport != Transport::kThreads) text += fmt::format(", over {}", name_of(p.transport));
  return text;
}

std::string describe_strategy(const Parallelism& p) {
  std::string text = p.strategy;
  const OptionValue *ulysses = p.options.find("ulysses"), *placement = p.options.find("placement"),
                    *sharding = p.options.find("sharding");
  if (ulysses != nullptr) text += fmt::format(", ulysses {}", to_text(*ulysses));
  if (placement != nullptr && p.nodes > 1) text += fmt::format(", {}", to_text(*placement));
  if (sharding != nullptr) text += fmt::format(", {}", to_text(*sharding));
  return text;
}

}  // namespace longspan::bench
