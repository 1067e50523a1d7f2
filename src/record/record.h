// The records: what a run was measured on, what a case is, and its result. fields.h lists the fields of each
// struct once. The results file, the pipe from a case's process, the report reader and
// docs/reference/results.md all use that list.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "record/facts.h"
#include "record/json.h"
#include "record/timing_rule.h"

namespace longspan::record {

inline constexpr int kSchema = 1;

// By name, in the order recorded.
template <class T>
using Named = std::vector<std::pair<std::string, T>>;

struct Interval {
  double lo = 0, hi = 0;
  friend bool operator==(const Interval&, const Interval&) = default;
};

// An object to which another version may have added keys. This version writes a T and keeps all keys it
// reads.
template <class T>
struct Open {
  Json json;  // null if absent
  Facts facts() const { return facts_of(json); }
};

struct Machine {
  std::string kind, cpu_model;
  int64_t cpus = 0;
  std::optional<int64_t> memory_bytes, llc_bytes;
  std::string governor;
  std::optional<double> load_1min;
  std::string os, kernel, settings;
};

struct DeviceInfo {
  std::string kind, name, uuid;
  std::optional<int64_t> units, capability, memory_bytes, cache_bytes;
  std::string driver;
};

struct Software {
  std::string longspan, commit;
  std::optional<bool> dirty;
  std::string compiler, build_type, build_id;
  Named<std::string> libraries;
};

// The fastest large matrix product of a dtype, the reference of share_of_ceiling.
struct Ceiling {
  double flops_per_s = 0;
  std::string what;  // "sgemm 2048^3 of OpenBLAS, 2 threads"
  std::vector<double> samples_s;
  std::map<std::string, double> tried = {};  // the rate of each product, if several were tried
  double sm_clock_mhz = 0;                   // median clock of a GPU meanwhile; 0 if unknown
};

struct RunRecord {
  std::string run, started, command, suite;
  Open<Machine> machine;
  Open<DeviceInfo> device;
  Open<Software> software;
  Open<TimingRule> rule;
  Named<Ceiling> ceilings;  // by dtype
};

// What a run measures of a workload with one kernel, and one strategy if it is spread over ranks.
struct WorkloadRecord {
  std::string run, workload, hash;
  int64_t layers = 1;
  std::vector<std::vector<std::vector<std::string>>> steps;  // by step and replica, the ids of cases
};

// A case as bench::to_json writes it. The members are the axes of every case; axes of a strategy are in
// `extra`.
struct Workload {
  std::string kernel, mask;
  Open<void> options;  // of the pattern, if they differ from its defaults
  int64_t seqlen = 0, heads_q = 0, heads_kv = 0, head_dim = 0;
  std::string dtype, direction;
  int64_t masks = 1;
  std::string lengths;
  uint64_t seed = 0;
  bool deterministic = false;
  Facts option_facts;  // of `options`
  Facts extra;         // further axes: strategy, ranks, ...
  Json json;           // as written
};

struct ErrorFigure {
  std::string tensor;  // "o", "lse", "dq", "dk", "dv"
  double error = 0;
  std::optional<double> tolerance;
};

struct Accuracy {
  std::vector<std::string> checked;  // "o", "lse", "dq", "dk", "dv"
  int64_t masks = 0;
  std::map<std::string, double> max_error;  // by tensor; NaN if it is not a number
  std::map<std::string, double> tolerance;
  std::string counting;           // "pass" or "fail"; empty if not checked
  int64_t rows = 0, columns = 0;  // compared
  std::optional<bool> same_bits;  // of two runs; absent if not required

  std::vector<ErrorFigure> errors() const;   // those that are numbers
  std::optional<ErrorFigure> worst() const;  // the largest relative to its tolerance
};

// A mask on a square grid, row by row from the top.
struct Picture {
  int64_t size = 0;            // cells along one side
  std::vector<uint8_t> cells;  // [size, size]
};

struct PlanMove {
  std::string what;  // "q", "kv", "o", "do", "dq", "dkv"
  int64_t from = 0, to = 0, bytes = 0;
};

struct PlanRound {
  std::vector<int64_t> sent_bytes, between_nodes_bytes, area;  // by rank
  std::optional<std::vector<PlanMove>> moves;                  // absent above a number of ranks
};

// One pass of a schedule: its cost by rank, and what moves in each round.
struct PassPlan {
  int64_t rounds = 0;
  double imbalance = 0;
  std::vector<int64_t> sent_bytes, between_nodes_bytes, area, peak_copy_bytes;  // by rank
  std::vector<PlanRound> by_round;
  std::vector<std::vector<std::pair<int64_t, int64_t>>> owned;  // by rank, ranges of tokens
};

// The additional results of a case spread over ranks. Lists are by rank; an empty list was not recorded.
struct ParallelRecord {
  int64_t ranks = 0, nodes = 1;
  std::string transport;
  int64_t rounds = 0;
  std::optional<double> imbalance, spread;
  std::vector<double> area, sent_bytes, predicted_bytes, between_nodes_bytes, peak_copy_bytes, held_bytes,
      planned_held_bytes;
  std::vector<double> rank_time_s, compute_s, exposed_s, reorder_s, merge_s;
  std::map<std::string, double> difference, single_error;  // by tensor
  PassPlan plan;

  // The mean share of the ranks' times that a part (such as compute_s) takes; nothing if not recorded.
  std::optional<double> share(const std::vector<double>& part) const;
};

struct DeviceState {
  std::array<double, 3> sm_clock_mhz{};  // lowest, median, highest
  double power_w = 0, temperature_c = 0;
  std::vector<std::string> throttle_reasons;
};

struct Measurement {
  int64_t index = 0, area = 0;
  double flops = 0;
  Open<void> params;  // of the mask, as drawn
  int64_t documents = 0;
  std::optional<double> plan_s, median_s;
  std::optional<Interval> interval_s;
  std::optional<bool> converged;
  std::vector<double> samples_s, throttled_samples_s;
};

enum class Status : uint8_t { kOk, kSkipped, kFailed };
std::string_view name_of(Status status);  // "ok"

// The result of a case.
struct Outcome {
  Status status = Status::kFailed;
  std::string reason;
  std::optional<double> area, density, flops, time_s;
  std::optional<Interval> interval_s;
  std::optional<double> flops_per_s, plan_s;
  std::optional<int64_t> plan_bytes, workspace_bytes, peak_bytes, total_bytes;
  std::string settings;
  std::map<std::string, std::string> versions;
  std::optional<double> compile_s;
  std::optional<Accuracy> accuracy;
  std::optional<ParallelRecord> parallel;
  std::optional<double> flops_per_s_per_rank;
  std::optional<Picture> picture;
  std::optional<int64_t> throttled;
  Open<DeviceState> device_state;
  std::vector<Measurement> measurements;
  Named<double> phases_s;
  std::optional<double> share_of_ceiling;

  static Outcome skipped(std::string reason);
  static Outcome failed(std::string reason);
};

struct CaseRecord : Outcome {
  std::string run = {}, id = {};
  Workload workload = {};
  std::string command = {}, started = {};
  std::optional<double> elapsed_s = {};
};

// A prediction of `longspan simulate --json`: what a case has, and the machine that was simulated. interval_s
// is the time with links a quarter faster and slower.
struct SimulatedMachine {
  std::string name;
  bool measured = false;  // every figure of it
};

// What each rank does when, in columns: stretches of time in the order of ranks and time.
struct SimulatedTimeline {
  std::vector<int64_t> rank;
  std::vector<std::string> what;  // "compute", "wait", "reorder", "merge"
  std::vector<double> begin_s, end_s;
  std::vector<int64_t> peer;  // whose data a wait is for; -1: no one rank's
};

// What each rank's buffers use over time, in columns: the most from begin_s until the rank's next one.
struct SimulatedMemory {
  std::vector<int64_t> rank;
  std::vector<double> begin_s, bytes;
};

struct SimulatedRecord : Outcome {
  Workload workload = {};
  SimulatedMachine machine = {};
  std::optional<SimulatedTimeline> timeline = {};
  std::optional<SimulatedMemory> memory = {};
};

}  // namespace longspan::record
