// How a case is spread over ranks: the part of a Case that only context-parallel cases have.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "comm/launch.h"
#include "cp/strategies/strategy.h"

namespace longspan::bench {

// How data moves between ranks. Ranks are threads of one process, or processes (launch_of_processes).
enum class Transport : uint8_t { kThreads, kNccl, kMpi };
std::string_view name_of(Transport transport);
Transport transport_from_name(std::string_view name);  // throws an input error that lists the names

struct Parallelism {
  std::string strategy;  // empty: a single device, and nothing else is set
  int ranks = 0;
  int nodes = 0;  // 0: all ranks on one node
  StrategyOptions options;
  Transport transport = Transport::kThreads;

  explicit operator bool() const { return !strategy.empty(); }
  Topology topology() const;
  friend bool operator==(const Parallelism&, const Parallelism&) = default;
};

// An axis of context parallelism: strategy, ranks, topology, options of the strategies, transport.
struct ParallelAxis {
  std::string_view name;
  std::string help;
  std::function<void(Parallelism& p, std::string_view text)> set;
  std::function<std::string(const Parallelism& p)> get;  // empty: not set, or the strategy does not read it
  bool comma_in_value = false, numeric = false;
};
std::span<const ParallelAxis> parallel_axes();

// Keys of a case's JSON: those of the axes, without values left at their defaults.
void add_to_json(const Parallelism& p, nlohmann::json& json);
Parallelism parallelism_from_json(const nlohmann::json& json);

// The launch of this process if each rank of the case is a process: over MPI, or over NCCL if a launcher
// started several. Otherwise nullopt.
std::optional<Launch> launch_of_processes(const Parallelism& p);

// For ranks that are no processes: throws an input error, with the reason, if a launcher started several.
void expect_one_process(std::string_view reason);

// Fills in options left to the strategy and removes those that it does not read, so that the same work is the
// same case. Throws an input error if the ranks or the strategy are missing or contradict the topology.
Parallelism normalised(Parallelism p, int64_t heads_q, int64_t heads_kv);

// "usp on 4 ranks, ulysses 2"
std::string describe(const Parallelism& p);

// The same without the ranks, and with its degree: "usp, ulysses 4, context-first"
std::string describe_strategy(const Parallelism& p);

}  // namespace longspan::bench
