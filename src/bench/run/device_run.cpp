#include "bench/run/device_run.h"

#include <algorithm>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "base/error.h"
#include "bench/measure/cpu_testbed.h"
#include "bench/measure/parallel_measure.h"
#include "bench/run/machine.h"
#include "bench/spec/values.h"
#include "record/record_json.h"

namespace longspan::bench {
namespace {

constexpr double kProbeLimitS = 120;

std::string random_id() {
  std::random_device device;
  return hex16(uint64_t{device()} << 32 | device());
}

}  // namespace

DeviceRun::DeviceRun(const RunOptions& options, const Workbench& workbench, Ledger& ledger,
                     SignalGuard& guard, const Device& device, const Variables& variables,
                     std::vector<Device> devices)
    : options_(options),
      workbench_(workbench),
      ledger_(ledger),
      isolation_(guard, variables),
      device_(device),
      variables_(variables),
      devices_(std::move(devices)) {}

bool DeviceRun::begin(const std::vector<Case>& cases) {
  std::set<DType> dtypes;
  for (const Case& c : cases) dtypes.insert(c.dtype);
  record::RunRecord run;
  run.started = utc_now();
  run.machine = record::open_object(machine_record());  // before the ceiling's own load
  std::string driver;
  for (const DType dtype : dtypes) {
    const std::optional<ProbeAnswer> answer = isolation_.probe(device_, dtype, kProbeLimitS);
    if (!answer) {
      ledger_.interrupt();
      return false;
    }
    if (!answer->driver.empty()) driver = answer->driver;
    if (!answer->ceiling) {
      ledger_.note(fmt::format("no ceiling for {}: {}", name_of(dtype), answer->reason));
      continue;
    }
    ceilings_[dtype] = answer->ceiling->flops_per_s;
    ledger_.note(fmt::format("ceiling of {} for {}: {} ({})", device_.name, name_of(dtype),
                             format_rate(ceilings_[dtype]), answer->ceiling->what));
    run.ceilings.emplace_back(name_of(dtype), *answer->ceiling);
  }
  run_id_ = random_id();
  run.run = run_id_;
  run.command = options_.command;
  run.suite = options_.suite;
  run.device = record::open_object(device_record(device_, driver));
  run.software = record::open_object(software_record());
  run.rule = record::open_object(options_.rule);
  ledger_.write(run);
  // Not before: so many frameworks that start at once leave the ceiling's launches without a CPU, and a
  // device that waits gets cooler and faster.
  for (const Case& c : cases) {
    const bool known = helpers_.find(c.kernel) != helpers_.end();
    const bool runs_here = device_for(*workbench_.find(c.kernel), devices_) != nullptr;
    if (!known && runs_here) start_helper(c.kernel);  // they get ready while others are measured
  }
  return true;
}

bool DeviceRun::run_one(const Case& c) {
  ledger_.begin(c);
  started_ = utc_now();
  begin_s_ = steady_clock().now_s();
  std::optional<CaseAnswer> answer = skip_at_once(c);
  if (!answer) answer = measure(c);
  if (!answer) {
    ledger_.interrupt();
    return false;
  }
  if (answer->always) ledger_.always_skip(c.kernel, answer->outcome.reason);
  record(c, std::move(answer->outcome));
  return true;
}

void DeviceRun::record(const Case& c, record::Outcome outcome) {
  record::CaseRecord result{std::move(outcome)};
  const auto ceiling = ceilings_.find(c.dtype);
  const double devices = devices_of(c);
  if (ceiling != ceilings_.end() && result.flops_per_s && devices > 0)
    result.share_of_ceiling = *result.flops_per_s / (ceiling->second * devices);
  result.run = run_id_;
  result.id = id_of(c);
  result.workload = workload_of(c);
  result.command = command_of(c, options_.rule);
  result.started = started_;
  result.elapsed_s = steady_clock().now_s() - begin_s_;
  ledger_.end(c, result);
}

// Nothing if the run was interrupted.
std::optional<CaseAnswer> DeviceRun::measure(const Case& c) {
  if (options_.team != nullptr && launch_of_processes(c.parallelism)) return measure_with_team(c);
  std::optional<CaseAnswer> answer = attempt(c);
  if (!answer || answer->outcome.status != record::Status::kFailed) return answer;
  // A case is judged by itself: not by what others before it did to its process, nor by a lack of memory that
  // other kernels' helpers hold even while they rest.
  const bool short_of_memory = answer->outcome.reason.find("out of memory") != std::string::npos;
  const bool held = short_of_memory && end_other_helpers(c);
  return isolation_.in_doubt() || held ? attempt(c) : answer;
}

// The case of a team: every process of it begins the case, and this one writes down what came of it.
std::optional<CaseAnswer> DeviceRun::measure_with_team(const Case& c) {
  const bool here = c.parallelism.transport == Transport::kMpi;
  std::optional<CaseAnswer> answer;
  try {
    options_.team->call(c);
    if (here) {
      answer = run_over_mpi(c, device_, options_.rule, workbench_, options_.team->alarm(),
                            [&](CaseAnswer late) { record(c, std::move(late.outcome)); });
    } else {
      answer = isolation_.run_case(c, device_, options_.rule);
    }
  } catch (const std::exception& error) {
    answer = CaseAnswer::failed(error.what());
    answer->group_failed = true;
  }
  if (!answer) return answer;
  // Processes of their own begin anew; but over MPI nobody knows what is still under way between the ranks.
  if ((answer->group_failed && here) || !options_.team->alarm().failure().empty()) ledger_.break_up();
  return answer;
}

std::optional<CaseAnswer> DeviceRun::attempt(const Case& c) {
  std::optional<CaseAnswer> answer = isolation_.run_case(c, device_, options_.rule, helper_for(c));
  if (answer) look_after_helper(c, answer->outcome);
  return answer;
}

// GPUs that share the case's work; ranks on the CPU share the machine that the ceiling was measured on. 0: it
// is not known, as where a launcher gave each process CPUs of its own.
double DeviceRun::devices_of(const Case& c) const {
  if (c.parallelism && c.parallelism.transport == Transport::kMpi) return 0;
  if (c.parallelism && c.parallelism.transport == Transport::kNccl) return c.parallelism.ranks;
  if (!c.parallelism || device_.kind == DeviceKind::kCpu) return 1;
  const auto there = std::count_if(devices_.begin(), devices_.end(),
                                   [&](const Device& other) { return other.kind == device_.kind; });
  return static_cast<double>(std::min<int64_t>(there, c.parallelism.ranks));
}

// What needs no process of its own to be known.
std::optional<CaseAnswer> DeviceRun::skip_at_once(const Case& c) {
  if (device_for(*workbench_.find(c.kernel), devices_) == nullptr)
    return CaseAnswer::skipped("needs a CUDA device: " + no_cuda_reason());
  const std::string reason = ledger_.always_skipped(c.kernel);
  return reason.empty() ? std::nullopt : std::optional(CaseAnswer::skipped(reason));
}

// The helper that served this kernel's last case, or a new one; null where the kernel needs none.
Helper* DeviceRun::helper_for(const Case& c) {
  Kept& kept = helpers_[c.kernel];
  if (kept.helper != nullptr && kept.used && !kept.helper->how_it_ended().empty()) {
    ++kept.useless;
    kept.helper.reset();
  }
  if (kept.helper == nullptr) start_helper(c.kernel);
  kept.used = true;  // if it has ended before its first case, that case is told why
  return kept.helper.get();
}

void DeviceRun::start_helper(const std::string& kernel) {
  Kept& kept = helpers_[kernel];
  kept.used = false;
  if (workbench_.helpers.start)
    kept.helper = workbench_.helpers.start(*workbench_.find(kernel), kept.useless, variables_);
}

// Were there any?
bool DeviceRun::end_other_helpers(const Case& c) {
  bool any = false;
  for (auto& [kernel, kept] : helpers_) {
    if (kernel == c.kernel || kept.helper == nullptr) continue;
    kept.helper.reset();
    any = true;
  }
  return any;
}

// After a failure nobody knows what state a helper is in: it is ended, and how it ended before is told.
void DeviceRun::look_after_helper(const Case& c, record::Outcome& outcome) {
  Kept& kept = helpers_[c.kernel];
  if (kept.helper == nullptr || outcome.status != record::Status::kFailed) return;
  const std::string end = kept.helper->how_it_ended();
  if (!end.empty()) outcome.reason += "; the worker " + end;
  kept.helper.reset();
}

}  // namespace longspan::bench
