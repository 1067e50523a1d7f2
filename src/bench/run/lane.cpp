#include "bench/run/lane.h"

#include <algorithm>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "base/error.h"
#include "bench/measure/cpu_testbed.h"
#include "bench/measure/parallel_measure.h"
#include "bench/run/case_runner.h"
#include "bench/run/machine.h"
#include "bench/spec/values.h"

namespace longspan::bench {
namespace {

constexpr double kProbeLimitS = 120;

std::string random_id() {
  std::random_device device;
  return hex16(uint64_t{device()} << 32 | device());
}

}  // namespace

Json rule_json(const TimingRule& rule) {
  return {{"warmup_s", rule.warmup_s},       {"min_samples", rule.min_samples},
          {"max_samples", rule.max_samples}, {"budget_s", rule.budget_s},
          {"half_width", rule.half_width},   {"confidence", rule.confidence},
          {"cold_cache", rule.cold_cache},   {"timeout_s", rule.timeout_s}};
}

Ledger::Ledger(const RunOptions& options, ResultsFile& file, SignalGuard& guard, std::vector<Case> cases,
               size_t lanes)
    : options_(options),
      file_(file),
      guard_(guard),
      begin_s_(steady_clock().now_s()),
      progress_(options.progress, options.terminal, steady_clock(), cases,
                options.cases.size() - cases.size(), lanes) {
  summary_.path = file.path();
  summary_.earlier = static_cast<int64_t>(options.cases.size() - cases.size());
  summary_.left = static_cast<int64_t>(cases.size());
}

bool Ledger::may_begin() {
  const std::lock_guard lock(mutex_);
  if (guard_.interrupted()) summary_.interrupted = true;
  const double limit_s = options_.stop_after_s;
  if (limit_s > 0 && steady_clock().now_s() - begin_s_ >= limit_s) summary_.stopped = true;
  return !given_up_ && !summary_.interrupted && !summary_.stopped;
}

void Ledger::interrupt() {
  const std::lock_guard lock(mutex_);
  summary_.interrupted = true;
}

void Ledger::break_up() {
  give_up();
  const std::lock_guard lock(mutex_);
  summary_.broken = true;
}

void Ledger::note(const std::string& text) {
  const std::lock_guard lock(mutex_);
  progress_.note(text);
}

void Ledger::write_run(const Json& line) {
  const std::lock_guard lock(mutex_);
  file_.append(line);
}

void Ledger::begin(const Case& c) {
  const std::lock_guard lock(mutex_);
  progress_.begin(c);
}

void Ledger::end(const Case& c, const Json& line, const Json& outcome, double elapsed_s) {
  const std::lock_guard lock(mutex_);
  file_.append(line);
  --summary_.left;
  const std::string status = outcome.value("status", "failed");
  ++(status == "ok" ? summary_.ok : status == "skipped" ? summary_.skipped : summary_.failed);
  const auto share = outcome.find("share_of_ceiling");
  if (share != outcome.end() && share->get<double>() > 1) ++summary_.above_ceiling;
  progress_.end(c, outcome, elapsed_s);
}

void Ledger::always_skip(const std::string& kernel, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  always_skipped_[kernel] = reason;
}

std::string Ledger::always_skipped(const std::string& kernel) {
  const std::lock_guard lock(mutex_);
  const auto found = always_skipped_.find(kernel);
  return found == always_skipped_.end() ? "" : found->second;
}

RunSummary Ledger::finish() {
  const std::lock_guard lock(mutex_);
  progress_.clear();
  return summary_;
}

Lane::Lane(const RunOptions& options, const Workbench& workbench, Ledger& ledger, SignalGuard& guard,
           const Device& device, const Variables& variables, std::vector<Device> devices)
    : options_(options),
      workbench_(workbench),
      ledger_(ledger),
      isolation_(guard, variables),
      device_(device),
      variables_(variables),
      devices_(std::move(devices)) {}

bool Lane::begin(const std::vector<Case>& cases) {
  std::set<DType> dtypes;
  for (const Case& c : cases) dtypes.insert(c.dtype);
  const Json machine = machine_record();  // before the ceiling's own load
  const std::string started = utc_now();
  std::string driver;
  Json ceilings = Json::object();
  for (const DType dtype : dtypes) {
    const std::optional<Json> answer = isolation_.probe(device_, dtype, kProbeLimitS);
    if (!answer) {
      ledger_.interrupt();
      return false;
    }
    driver = answer->value("driver", driver);
    if (const auto ceiling = answer->find("ceiling"); ceiling != answer->end()) {
      ceilings[std::string(name_of(dtype))] = *ceiling;
      ceilings_[dtype] = ceiling->at("flops_per_s").get<double>();
      ledger_.note(fmt::format("ceiling of {} for {}: {} ({})", device_.name, name_of(dtype),
                               format_rate(ceilings_[dtype]), ceiling->at("what").get<std::string>()));
    } else {
      ledger_.note(fmt::format("no ceiling for {}: {}", name_of(dtype), answer->value("reason", "")));
    }
  }
  run_id_ = random_id();
  ledger_.write_run({{"type", "run"},
                     {"schema", kResultsSchema},
                     {"run", run_id_},
                     {"started", started},
                     {"command", options_.command},
                     {"suite", options_.suite},
                     {"machine", machine},
                     {"device", device_record(device_, driver)},
                     {"software", software_record()},
                     {"rule", rule_json(options_.rule)},
                     {"ceilings", std::move(ceilings)}});
  // Not before: so many frameworks that start at once leave the ceiling's launches without a CPU, and a
  // device that waits gets cooler and faster.
  for (const Case& c : cases) {
    const bool known = helpers_.find(c.kernel) != helpers_.end();
    const bool runs_here = device_for(*workbench_.find(c.kernel), devices_) != nullptr;
    if (!known && runs_here) start_helper(c.kernel);  // they get ready while others are measured
  }
  return true;
}

bool Lane::run_one(const Case& c) {
  ledger_.begin(c);
  started_ = utc_now();
  begin_s_ = steady_clock().now_s();
  std::optional<Json> outcome = skip_at_once(c);
  if (!outcome) outcome = measure(c);
  if (!outcome) {
    ledger_.interrupt();
    return false;
  }
  if (outcome->erase(kAlways) > 0) ledger_.always_skip(c.kernel, outcome->value("reason", ""));
  record(c, std::move(*outcome));
  return true;
}

void Lane::record(const Case& c, Json outcome) {
  const double elapsed_s = steady_clock().now_s() - begin_s_;
  const auto ceiling = ceilings_.find(c.dtype);
  const auto rate = outcome.find("flops_per_s");
  const double devices = devices_of(c);
  if (ceiling != ceilings_.end() && rate != outcome.end() && rate->is_number() && devices > 0)
    outcome["share_of_ceiling"] = rate->get<double>() / (ceiling->second * devices);
  Json line = {{"type", "case"},
               {"schema", kResultsSchema},
               {"run", run_id_},
               {"id", id_of(c)},
               {"case", Json::parse(to_json(c).dump())},
               {"command", command_of(c, options_.rule)},
               {"started", started_},
               {"elapsed_s", elapsed_s}};
  line.update(outcome);
  ledger_.end(c, line, outcome, elapsed_s);
}

// Nothing if the run was interrupted.
std::optional<Json> Lane::measure(const Case& c) {
  if (options_.team != nullptr && launch_of_processes(c.parallelism)) return measure_with_team(c);
  std::optional<Json> outcome = attempt(c);
  if (!outcome || outcome->value("status", "failed") != "failed") return outcome;
  // A case is judged by itself: not by what others before it did to its process, nor by a lack of memory that
  // other kernels' helpers hold even while they rest.
  const bool short_of_memory = outcome->value("reason", "").find("out of memory") != std::string::npos;
  const bool held = short_of_memory && end_other_helpers(c);
  return isolation_.in_doubt() || held ? attempt(c) : outcome;
}

// The case of a team: every process of it begins the case, and this one writes down what came of it.
std::optional<Json> Lane::measure_with_team(const Case& c) {
  const bool here = c.parallelism.transport == Transport::kMpi;
  std::optional<Json> outcome;
  try {
    options_.team->call(c);
    if (here) {
      outcome = run_over_mpi(c, device_, options_.rule, workbench_, options_.team->alarm(),
                             [&](Json late) { record(c, std::move(late)); });
    } else {
      outcome = isolation_.run_case(c, device_, options_.rule);
    }
  } catch (const std::exception& error) {
    outcome = {{"status", "failed"}, {"reason", error.what()}, {kGroupFailed, true}};
  }
  if (!outcome) return outcome;
  // Processes of their own begin anew; but over MPI nobody knows what is still under way between the ranks.
  const bool failed = outcome->erase(kGroupFailed) > 0;
  if ((failed && here) || !options_.team->alarm().failure().empty()) ledger_.break_up();
  return outcome;
}

std::optional<Json> Lane::attempt(const Case& c) {
  std::optional<Json> outcome = isolation_.run_case(c, device_, options_.rule, helper_for(c));
  if (outcome) look_after_helper(c, *outcome);
  return outcome;
}

// GPUs that share the case's work; ranks on the CPU share the machine that the ceiling was measured on. 0: it
// is not known, as where a launcher gave each process CPUs of its own.
double Lane::devices_of(const Case& c) const {
  if (c.parallelism && c.parallelism.transport == Transport::kMpi) return 0;
  if (c.parallelism && c.parallelism.transport == Transport::kNccl) return c.parallelism.ranks;
  if (!c.parallelism || device_.kind == DeviceKind::kCpu) return 1;
  const auto there = std::count_if(devices_.begin(), devices_.end(),
                                   [&](const Device& other) { return other.kind == device_.kind; });
  return static_cast<double>(std::min<int64_t>(there, c.parallelism.ranks));
}

// What needs no process of its own to be known.
std::optional<Json> Lane::skip_at_once(const Case& c) {
  const auto skip = [](const std::string& reason) { return Json{{"status", "skipped"}, {"reason", reason}}; };
  if (device_for(*workbench_.find(c.kernel), devices_) == nullptr)
    return skip("needs a CUDA device: " + no_cuda_reason());
  const std::string reason = ledger_.always_skipped(c.kernel);
  return reason.empty() ? std::nullopt : std::optional<Json>(skip(reason));
}

// The helper that served this kernel's last case, or a new one; null where the kernel needs none.
Helper* Lane::helper_for(const Case& c) {
  Kept& kept = helpers_[c.kernel];
  if (kept.helper != nullptr && kept.used && !kept.helper->how_it_ended().empty()) {
    ++kept.useless;
    kept.helper.reset();
  }
  if (kept.helper == nullptr) start_helper(c.kernel);
  kept.used = true;  // if it has ended before its first case, that case is told why
  return kept.helper.get();
}

void Lane::start_helper(const std::string& kernel) {
  Kept& kept = helpers_[kernel];
  kept.used = false;
  if (workbench_.helpers.start)
    kept.helper = workbench_.helpers.start(*workbench_.find(kernel), kept.useless, variables_);
}

// Were there any?
bool Lane::end_other_helpers(const Case& c) {
  bool any = false;
  for (auto& [kernel, kept] : helpers_) {
    if (kernel == c.kernel || kept.helper == nullptr) continue;
    kept.helper.reset();
    any = true;
  }
  return any;
}

// After a failure nobody knows what state a helper is in: it is ended, and how it ended before is told.
void Lane::look_after_helper(const Case& c, Json& outcome) {
  Kept& kept = helpers_[c.kernel];
  if (kept.helper == nullptr || outcome.value("status", "failed") != "failed") return;
  const std::string end = kept.helper->how_it_ended();
  if (!end.empty())
    outcome["reason"] = fmt::format("{}; the worker {}", outcome.value("reason", "failed"), end);
  kept.helper.reset();
}

}  // namespace longspan::bench
