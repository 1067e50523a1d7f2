#include "cli/workload_advice.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/printable.h"
#include "bench/simulate/advise_workload.h"
#include "bench/spec/values.h"
#include "cli/machine_option.h"
#include "cli/progress_line.h"
#include "record/json.h"
#include "report/workload_summary.h"

namespace longspan::cli {
namespace {

using bench::Policy, bench::WorkloadAdvice;
using record::Json;
using report::Percentiles;

// The ranks and what else the options say. The workload says the rest.
bench::Case base_of(const bench::Workload& workload, const ScheduleArguments& arguments,
                    const std::string& kernel) {
  bench::Case c;
  c.kernel = kernel;
  c.dtype = workload.dtype;
  for (const auto& [axis, value] : arguments.axes) {
    if (value.empty()) continue;
    const bool read = axis == "ranks" || axis == "topology" || axis == "transport" || axis == "dtype";
    LONGSPAN_CHECK_INPUT(read, "{} cannot be combined with --workload, which says it", option_name(axis));
  }
  for (const char* axis : {"dtype", "ranks", "topology", "transport"}) {
    const auto given = arguments.axes.find(axis);
    if (given == arguments.axes.end() || given->second.empty()) continue;
    try {
      bench::find_axis(axis)->set(c, given->second);
    } catch (const Error& error) {
      LONGSPAN_CHECK_INPUT(false, "{} {}", option_name(axis), error.what());
    }
  }
  bench::Parallelism& p = c.parallelism;
  if (p.ranks == 0) p.ranks = static_cast<int>(workload.dp * workload.cp);
  LONGSPAN_CHECK_INPUT(
      p.ranks > 1,
      "--ranks is missing, and the workload's dp and cp are 1; give the number of ranks that "
      "share the micro-batches, or --topology NODESxDEVICES");
  LONGSPAN_CHECK_INPUT(p.nodes == 0 || p.ranks % p.nodes == 0, "--ranks {} contradicts --topology", p.ranks);
  return c;
}

double sum(const std::vector<double>& list) {
  return std::accumulate(list.begin(), list.end(), 0.0);
}

std::string name_of(const Policy& policy) {
  return policy.degree == 1 ? "single GPUs" : describe_strategy(policy.parallelism);
}

void print_row(const std::string& degree, const std::string& name, const Policy& p) {
  fmt::print("  {:>6}  {:<38}", degree, name);
  if (!p.fits) {
    fmt::print("  does not fit{}\n",
               p.memory_bytes > 0 ? ": needs " + bench::format_bytes(p.memory_bytes) : "");
    return;
  }
  const Percentiles step = report::percentiles(p.step_s);
  const Percentiles planned = report::percentiles(p.planned_step_s);
  for (const double s : {step.p50, step.p95, step.p99, planned.p50})
    fmt::print("  {:>8}", bench::format_seconds(s));
  fmt::print("  {:>6.1f}%  {:>9}  {:>8.3g}  {:>9}  {:>6.1f}%\n", 100 * p.exposed_share,
             bench::format_bytes(p.between_bytes / static_cast<double>(p.step_s.size())), p.idle_gpu_hours,
             bench::format_bytes(p.memory_bytes), 100 * p.planned_regret);
}

void print_advice_text(const WorkloadAdvice& advice, const bench::Workload& w, const std::string& path,
                       const bench::Case& base, const bench::Machine& machine) {
  const Topology topology = base.parallelism.topology();
  const size_t batches = std::accumulate(w.steps.begin(), w.steps.end(), size_t{0},
                                         [](size_t n, const auto& s) { return n + s.micro_batches.size(); });
  fmt::print(
      "{}: {} steps, {} micro-batches, {} layers, {}:{} heads of {}, {}, on {}x{} GPUs{}: simulated\n",
      printable(path), w.steps.size(), batches, w.layers, w.heads_q, w.heads_kv, w.head_dim,
      longspan::name_of(base.dtype), topology.nodes, topology.devices,
      w.tp * w.pp > 1 ? fmt::format(", times {} of tensor and pipeline parallelism", w.tp * w.pp) : "");
  fmt::print("{}", machine_line(machine));
  if (w.memory_bytes > 0) fmt::print("  {:<12} {} of a GPU\n", "memory", bench::format_bytes(w.memory_bytes));
  fmt::print("\n  {:>6}  {:<38}  {:>8}  {:>8}  {:>8}  {:>8}  {:>7}  {:>9}  {:>8}  {:>9}  {:>7}\n", "degree",
             "one for all", "p50", "p95", "p99", "planned", "exposed", "between", "idle", "memory", "regret");
  int last = 0;
  for (const Policy& p : advice.fixed) {  // of each degree the fastest strategy
    if (p.degree != last) print_row(fmt::format("{}", p.degree), name_of(p), p);
    last = p.degree;
  }
  print_row("", "one for each step", advice.each_step);
  print_row("", "one for each micro-batch", advice.each_micro_batch);
  fmt::print("\n  micro-batches by degree:");
  for (const auto& [degree, count] : advice.each_micro_batch.degrees) fmt::print("  {}: {}", degree, count);
  fmt::print(
      "\n  pricing every choice took {} a step here\n\n"
      "  p50, p95, p99: a step; planned: p50 with planning on one CPU, not hidden. exposed: share of the "
      "ranks' time in\n"
      "  attention. between: sent to other nodes in a step. idle: GPU-hours in all steps. regret: with "
      "planning, over\n"
      "  the last row without it.\n",
      bench::format_seconds(advice.pricing_s / static_cast<double>(w.steps.size())));
}

Json json_of(const Policy& p) {
  Json json = {{"fits", p.fits}};
  if (p.memory_bytes > 0) json["memory_bytes"] = p.memory_bytes;
  if (!p.fits) return json;
  const auto percentiles = [](const std::vector<double>& steps) -> Json {
    const Percentiles of = report::percentiles(steps);
    return {{"p50", of.p50}, {"p95", of.p95}, {"p99", of.p99}, {"sum", sum(steps)}};
  };
  json["step_s"] = percentiles(p.step_s);
  json["planned_step_s"] = percentiles(p.planned_step_s);
  json["exposed_share"] = p.exposed_share;
  json["between_nodes_bytes"] = p.between_bytes;
  json["idle_gpu_hours"] = p.idle_gpu_hours;
  json["regret"] = p.regret;
  json["planned_regret"] = p.planned_regret;
  for (const auto& [degree, count] : p.degrees) json["degrees"][fmt::format("{}", degree)] = count;
  return json;
}

void print_advice_json(const WorkloadAdvice& advice, const bench::Workload& w, const std::string& path,
                       const bench::Case& base, const bench::Machine& machine) {
  const std::string transport(bench::name_of(base.parallelism.transport));
  Json json = {{"machine", {{"name", machine.name}, {"measured", machine.measured(transport)}}},
               {"workload", path},
               {"steps", w.steps.size()},
               {"ranks", base.parallelism.topology().ranks()},
               {"nodes", base.parallelism.topology().nodes},
               {"memory_bytes", w.memory_bytes > 0 ? Json(w.memory_bytes) : Json()},
               {"pricing_s", advice.pricing_s},
               {"one_degree", Json::array()},
               {"each_step", json_of(advice.each_step)},
               {"each_micro_batch", json_of(advice.each_micro_batch)}};
  for (const Policy& p : advice.fixed) {
    nlohmann::json axes = nlohmann::json::object();
    add_to_json(p.parallelism, axes);
    Json entry(axes);
    entry["degree"] = p.degree;
    entry.update(json_of(p));
    json["one_degree"].push_back(std::move(entry));
  }
  fmt::print("{}\n", record::text_of(json));
}

}  // namespace

void advise_on_workload(const std::string& path, const ScheduleArguments& arguments,
                        const std::string& kernel, const bench::Machine& machine, bool json) {
  const bench::Workload workload = bench::read_workload(path);
  const bench::Case base = base_of(workload, arguments, kernel);
  WorkloadAdvice advice;
  {
    const ProgressLine progress;
    advice = bench::advise_workload(workload, base, machine,
                                    [&](const std::string& text) { progress.show(text); });
  }
  (json ? print_advice_json : print_advice_text)(advice, workload, path, base, machine);
}

}  // namespace longspan::cli
