// Measures the ceilings of a device, runs its cases, and manages the helpers of their kernels.
#include "bench/run/device_run.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/random_bits.h"
#include "bench/measure/cpu_testbed.h"
#include "bench/measure/parallel_measure.h"
#include "bench/run/machine.h"
#include "bench/spec/values.h"
#include "record/record_json.h"

namespace longspan::bench {
namespace {

constexpr double kProbeLimitS = 120;

std::string random_id() {
  return hex16(random_bits());
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
  run.machine = record::open_object(machine_record());  // before the ceiling adds load
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
  for (record::WorkloadRecord workload : options_.workload) {
    workload.run = run_id_;
    ledger_.write(workload);
  }
  // Start helpers only after the ceilings: many frameworks starting at once would delay the ceiling's
  // launches, and an idle device is cooler and faster.
  for (const Case& c : cases) {
    const bool known = helpers_.find(c.kernel) != helpers_.end();
    const bool runs_here = device_for(workbench_.find(c.kernel), devices_) != nullptr;
    if (!known && runs_here) start_helper(c.kernel);  // it starts while other kernels are measured
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
  if (const auto words = options_.kernel_words.find(c.kernel); words != options_.kernel_words.end())
    result.command += words->second;
  result.started = started_;
  result.elapsed_s = steady_clock().now_s() - begin_s_;
  ledger_.end(c, result);
}

// nullopt if the run was interrupted.
std::optional<CaseAnswer> DeviceRun::measure(const Case& c) {
  if (options_.team != nullptr && launch_of_processes(c.parallelism)) return measure_with_team(c);
  std::optional<CaseAnswer> answer = attempt(c);
  if (!answer || answer->outcome.status != record::Status::kFailed) return answer;
  // Retry in a fresh process if earlier cases may have caused the failure, and without the idle helpers of
  // other kernels if memory ran out.
  const bool short_of_memory = answer->outcome.reason.find("out of memory") != std::string::npos;
  const bool held = short_of_memory && end_other_helpers(c);
  return isolation_.in_doubt() || held ? attempt(c) : answer;
}

// A case of the team: every process runs it, and this one records the result.
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
  // Child processes start afresh. Over MPI, messages between the ranks may still be in flight.
  if ((answer->group_failed && here) || !options_.team->alarm().failure().empty()) ledger_.break_up();
  return answer;
}

std::optional<CaseAnswer> DeviceRun::attempt(const Case& c) {
  std::optional<CaseAnswer> answer = isolation_.run_case(c, device_, options_.rule, helper_for(c));
  if (answer) end_failed_helper(c, answer->outcome);
  return answer;
}

// The number of devices whose ceilings add up for the case. Ranks on the CPU share the one machine that the
// ceiling was measured on. 0 if unknown, as when a launcher assigned CPUs to each process.
double DeviceRun::devices_of(const Case& c) const {
  if (c.parallelism && c.parallelism.transport == Transport::kMpi) return 0;
  if (c.parallelism && c.parallelism.transport == Transport::kNccl) return c.parallelism.ranks;
  if (!c.parallelism || device_.kind == DeviceKind::kCpu) return 1;
  const auto there = std::count_if(devices_.begin(), devices_.end(),
                                   [&](const Device& other) { return other.kind == device_.kind; });
  return static_cast<double>(std::min<int64_t>(there, c.parallelism.ranks));
}

// Reasons to skip that are known without starting a process.
std::optional<CaseAnswer> DeviceRun::skip_at_once(const Case& c) {
  const Kernel* kernel = workbench_.find(c.kernel);
  if (kernel == nullptr) return CaseAnswer::skipped(lacking_message(c.kernel, workbench_.rows));
  if (device_for(kernel, devices_) == nullptr)
    return CaseAnswer::skipped("needs a CUDA device: " + no_cuda_reason());
  const std::string reason = ledger_.always_skipped(c.kernel);
  return reason.empty() ? std::nullopt : std::optional(CaseAnswer::skipped(reason));
}

// The helper that served this kernel's last case, or a new one; null if the kernel needs none.
Helper* DeviceRun::helper_for(const Case& c) {
  HelperSlot& kept = helpers_[c.kernel];
  if (kept.helper != nullptr && kept.used && !kept.helper->how_it_ended().empty()) {
    ++kept.early_ends;
    kept.helper.reset();
  }
  if (kept.helper == nullptr) start_helper(c.kernel);
  kept.used = true;  // if it ends before its first case, that case reports why
  return kept.helper.get();
}

void DeviceRun::start_helper(const std::string& kernel) {
  HelperSlot& kept = helpers_[kernel];
  kept.used = false;
  if (workbench_.helpers.start)
    kept.helper = workbench_.helpers.start(*workbench_.find(kernel), kept.early_ends, variables_);
}

// Returns whether there were any.
bool DeviceRun::end_other_helpers(const Case& c) {
  bool any = false;
  for (auto& [kernel, kept] : helpers_) {
    if (kernel == c.kernel || kept.helper == nullptr) continue;
    kept.helper.reset();
    any = true;
  }
  return any;
}

// After a failure the helper's state is unknown, so it is ended. If it had ended by itself, the reason says
// how.
void DeviceRun::end_failed_helper(const Case& c, record::Outcome& outcome) {
  HelperSlot& kept = helpers_[c.kernel];
  if (kept.helper == nullptr || outcome.status != record::Status::kFailed) return;
  const std::string end = kept.helper->how_it_ended();
  if (!end.empty()) outcome.reason += "; the worker " + end;
  kept.helper.reset();
}

}  // namespace longspan::bench
