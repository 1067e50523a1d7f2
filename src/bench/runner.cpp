#include "bench/runner.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>

#include "base/error.h"
#include "bench/case_runner.h"
#include "bench/cpu_testbed.h"
#include "bench/isolation.h"
#include "bench/machine.h"
#include "bench/progress.h"
#include "bench/results.h"
#include "bench/values.h"

namespace longspan::bench {
namespace {

constexpr double kProbeLimitS = 120;

std::string random_id() {
  std::random_device device;
  return hex16(uint64_t{device()} << 32 | device());
}

Json rule_json(const TimingRule& rule) {
  return {{"warmup_s", rule.warmup_s},       {"min_samples", rule.min_samples},
          {"max_samples", rule.max_samples}, {"budget_s", rule.budget_s},
          {"half_width", rule.half_width},   {"confidence", rule.confidence},
          {"cold_cache", rule.cold_cache},   {"timeout_s", rule.timeout_s}};
}

// Refuses to mix what cannot be compared in one file: another timing rule, another machine.
void check_same_conditions(const ResultsFile& file, const TimingRule& rule) {
  const std::string advice = "name another folder with --out";
  const Json now = rule_json(rule);
  const std::string cpu = cpu_device().name;
  for (const ResultsLine& line : file.earlier()) {
    if (line.type != ResultsLine::Type::kRun) continue;
    for (const auto& [key, value] : now.items()) {
      if (key == "timeout_s") continue;  // it changes no number
      const Json before = line.json.value("rule", Json::object()).value(key, Json());
      LONGSPAN_CHECK_INPUT(before.is_null() || before == value,
                           "{} was begun with {} = {}, not {}; resume it with that, or {}", file.path(), key,
                           before.dump(), value.dump(), advice);
    }
    const Json before = line.json.value("machine", Json::object()).value("cpu_model", Json());
    LONGSPAN_CHECK_INPUT(before.is_null() || before == cpu, "{} was begun on another machine ({}); {}",
                         file.path(), before.dump(), advice);
  }
}

// The cases of one device: one run record.
struct Batch {
  Device device;
  std::vector<Case> cases;
};

// One device's kernels after the other's, each in the suite's order. Cases whose device is missing stay with
// the first batch, where they will be skipped.
std::vector<Batch> batches_of(const std::vector<Case>& cases, const Workbench& workbench,
                              const std::vector<Device>& devices) {
  std::vector<Batch> batches;
  for (const Case& c : cases) {
    const Device* device = device_for(*workbench.find(c.kernel), devices);
    if (device == nullptr) device = &devices.front();
    auto batch = std::find_if(batches.begin(), batches.end(), [&](const Batch& b) {
      return b.device.kind == device->kind && b.device.index == device->index;
    });
    if (batch == batches.end()) batch = batches.insert(batch, Batch{*device, {}});
    batch->cases.push_back(c);
  }
  return batches;
}

class Runner {
 public:
  Runner(const RunOptions& options, const Workbench& workbench, ResultsFile& file, std::vector<Case> cases)
      : options_(options),
        workbench_(workbench),
        file_(file),
        devices_(workbench.devices()),
        batches_(batches_of(cases, workbench, devices_)),
        isolation_(guard_),
        progress_(options.progress, options.terminal, steady_clock(), in_order(batches_),
                  options.cases.size() - cases.size()) {
    summary_.path = file.path();
    summary_.earlier = static_cast<int64_t>(options.cases.size() - cases.size());
    summary_.left = static_cast<int64_t>(cases.size());
  }

  RunSummary run() {
    for (const Batch& batch : batches_) {
      if (time_is_up() || !begin_batch(batch)) break;
      for (const Case& c : batch.cases) {
        if (time_is_up() || !run_one(c, batch.device)) break;
      }
      if (summary_.interrupted || summary_.stopped) break;
    }
    progress_.clear();
    return summary_;
  }

 private:
  static std::vector<Case> in_order(const std::vector<Batch>& batches) {
    std::vector<Case> cases;
    for (const Batch& batch : batches) cases.insert(cases.end(), batch.cases.begin(), batch.cases.end());
    return cases;
  }

  bool interrupt() {
    summary_.interrupted = true;
    return false;
  }

  bool time_is_up() {
    const double limit_s = options_.stop_after_s;
    if (limit_s > 0 && steady_clock().now_s() - begin_s_ >= limit_s) summary_.stopped = true;
    return summary_.stopped;
  }

  // Measures the ceilings and writes the run's record. False if interrupted.
  bool begin_batch(const Batch& batch) {
    const Json machine = machine_record();  // before the ceiling's own load
    const std::string started = utc_now();
    ceilings_.clear();
    std::string driver;
    Json ceilings = Json::object();
    std::set<DType> dtypes;
    for (const Case& c : batch.cases) dtypes.insert(c.dtype);
    for (const DType dtype : dtypes) {
      const std::optional<Json> answer = isolation_.probe(batch.device, dtype, kProbeLimitS);
      if (!answer) return interrupt();
      driver = answer->value("driver", driver);
      if (const auto ceiling = answer->find("ceiling"); ceiling != answer->end()) {
        ceilings[std::string(name_of(dtype))] = *ceiling;
        ceilings_[dtype] = ceiling->at("flops_per_s").get<double>();
        progress_.note(fmt::format("ceiling of {} for {}: {} ({})", batch.device.name, name_of(dtype),
                                   format_rate(ceilings_[dtype]), ceiling->at("what").get<std::string>()));
      } else {
        progress_.note(fmt::format("no ceiling for {}: {}", name_of(dtype), answer->value("reason", "")));
      }
    }
    run_id_ = random_id();
    file_.append({{"type", "run"},
                  {"schema", kResultsSchema},
                  {"run", run_id_},
                  {"started", started},
                  {"command", options_.command},
                  {"suite", options_.suite},
                  {"machine", machine},
                  {"device", device_record(batch.device, driver)},
                  {"software", software_record()},
                  {"rule", rule_json(options_.rule)},
                  {"ceilings", std::move(ceilings)}});
    return true;
  }

  // Runs a case and writes its line. False if interrupted: the case is then as if it had never begun.
  bool run_one(const Case& c, const Device& device) {
    progress_.begin(c);
    const std::string started = utc_now();
    const double begin_s = steady_clock().now_s();
    std::optional<Json> outcome = skip_at_once(c);
    if (!outcome) outcome = isolation_.run_case(c, device, options_.rule, helper_for(c));
    if (!outcome) return interrupt();
    look_after_helper(*outcome);
    if (outcome->erase(kAlways) > 0) always_skipped_[c.kernel] = outcome->value("reason", "");
    const double elapsed_s = steady_clock().now_s() - begin_s;

    const auto ceiling = ceilings_.find(c.dtype);
    const auto rate = outcome->find("flops_per_s");
    if (ceiling != ceilings_.end() && rate != outcome->end() && rate->is_number()) {
      const double share = rate->get<double>() / (ceiling->second * devices_of(c, device));
      (*outcome)["share_of_ceiling"] = share;
      if (share > 1) ++summary_.above_ceiling;
    }
    Json line = {{"type", "case"},
                 {"schema", kResultsSchema},
                 {"run", run_id_},
                 {"id", id_of(c)},
                 {"case", Json::parse(to_json(c).dump())},
                 {"command", command_of(c, options_.rule)},
                 {"started", started},
                 {"elapsed_s", elapsed_s}};
    line.update(*outcome);
    file_.append(line);
    count(line.value("status", "failed"));
    progress_.end(c, *outcome, elapsed_s);
    return !guard_.interrupted() || interrupt();
  }

  // GPUs that share the case's work; ranks on the CPU share the machine that the ceiling was measured on.
  double devices_of(const Case& c, const Device& device) const {
    if (!c.parallelism || device.kind == DeviceKind::kCpu) return 1;
    const auto there = std::count_if(devices_.begin(), devices_.end(),
                                     [&](const Device& other) { return other.kind == device.kind; });
    return static_cast<double>(std::min<int64_t>(there, c.parallelism.ranks));
  }

  // What needs no process of its own to be known.
  std::optional<Json> skip_at_once(const Case& c) const {
    const auto skip = [](const std::string& reason) {
      return Json{{"status", "skipped"}, {"reason", reason}};
    };
    if (device_for(*workbench_.find(c.kernel), devices_) == nullptr)
      return skip("needs a CUDA device: " + no_cuda_reason());
    if (const auto found = always_skipped_.find(c.kernel); found != always_skipped_.end())
      return skip(found->second);
    return std::nullopt;
  }

  // The helper that served this kernel's last case, or a new one; null where the kernel needs none.
  Helper* helper_for(const Case& c) {
    if (!workbench_.helpers.start) return nullptr;
    if (helper_kernel_ != c.kernel) {
      useless_helpers_ = 0;
    } else if (helper_ != nullptr) {
      if (helper_->how_it_ended().empty()) return helper_.get();
      ++useless_helpers_;
    }
    helper_.reset();  // before the next is started: each holds memory of the device
    helper_kernel_ = c.kernel;
    helper_ = workbench_.helpers.start(*workbench_.find(c.kernel), useless_helpers_);
    return helper_.get();
  }

  // After a failure nobody knows what state a helper is in: it is ended, and how it ended before is told.
  void look_after_helper(Json& outcome) {
    if (helper_ == nullptr) return;
    if (outcome.value("status", "failed") != "failed") return;
    const std::string end = helper_->how_it_ended();
    if (!end.empty()) {
      outcome["reason"] = fmt::format("{}; the worker {}", outcome.value("reason", "failed"), end);
    }
    helper_.reset();
  }

  void count(const std::string& status) {
    --summary_.left;
    if (status == "ok") {
      ++summary_.ok;
    } else if (status == "skipped") {
      ++summary_.skipped;
    } else {
      ++summary_.failed;
    }
  }

  const RunOptions& options_;
  const Workbench& workbench_;
  ResultsFile& file_;
  std::vector<Device> devices_;
  std::vector<Batch> batches_;
  SignalGuard guard_;
  Isolation isolation_;
  Progress progress_;
  RunSummary summary_;
  double begin_s_ = steady_clock().now_s();
  std::string run_id_;
  std::map<DType, double> ceilings_;
  std::map<std::string, std::string> always_skipped_;  // kernel -> reason
  std::unique_ptr<Helper> helper_;
  std::string helper_kernel_;
  size_t useless_helpers_ = 0;  // of that kernel
};

}  // namespace

RunSummary run(const RunOptions& options, const Workbench& workbench) {
  ResultsFile file(options.folder, options.resume ? ResultsFile::Mode::kResume : ResultsFile::Mode::kFresh);
  check_same_conditions(file, options.rule);
  std::set<std::string> done;
  for (const ResultsLine& line : file.earlier()) {
    if (line.type == ResultsLine::Type::kCase) done.insert(line.id);
  }
  std::vector<Case> cases;
  for (const Case& c : options.cases) {
    if (!done.contains(id_of(c))) cases.push_back(c);
  }
  return Runner(options, workbench, file, std::move(cases)).run();
}

const Device* device_for(const Kernel& kernel, const std::vector<Device>& devices) {
  for (const Device& device : devices) {
    if (device.kind == kernel.device_kind()) return &device;
  }
  return nullptr;
}

std::vector<std::string> offered_kernels(const Workbench& workbench) {
  DeviceKind best = DeviceKind::kCpu;
  const std::vector<Device> devices = workbench.devices();
  for (const Kernel* kernel : workbench.kernels) {
    if (kernel->device_kind() == DeviceKind::kCuda && device_for(*kernel, devices) != nullptr) {
      best = DeviceKind::kCuda;
    }
  }
  std::vector<std::string> names;
  for (const Kernel* kernel : workbench.kernels) {
    if (kernel->device_kind() == best) names.emplace_back(kernel->name());
  }
  return names;
}

std::string command_of(const Case& c, const TimingRule& rule) {
  std::string command = "longspan";
  for (const std::string& argument : arguments_of(c)) command += " " + shell_quoted(argument);
  const Json preset = rule_json(TimingRule{}), set = rule_json(rule);
  for (const RuleKey& key : rule_keys()) {
    const Json& value = set.at(std::string(key.name));
    if (value == preset.at(std::string(key.name))) continue;
    std::string option(key.name);
    std::replace(option.begin(), option.end(), '_', '-');
    command += fmt::format(" --{} {}", option, value.dump());
  }
  return command;
}

}  // namespace longspan::bench
