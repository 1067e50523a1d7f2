// Divides the cases of a run over devices, and checks that a resumed file is comparable.
#include "bench/run/runner.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/parallel.h"
#include "base/thread.h"
#include "bench/run/device_run.h"
#include "bench/run/machine.h"
#include "bench/run/problem_assignment.h"
#include "bench/spec/values.h"
#include "record/json.h"
#include "record/record_json.h"

namespace longspan::bench {
namespace {

using record::ResultsFile, record::ResultsLine;

// Reads a line of the resumed file.
template <class Read>
auto read_line(const ResultsFile& file, size_t index, Read&& read) {
  try {
    return read(file.earlier()[index]);
  } catch (const Error& error) {
    LONGSPAN_CHECK_INPUT(false, "{}:{}: {}; correct or remove the line, or choose another folder with --out",
                         file.path(), index + 1, error.what());
    throw;
  }
}

// Refuses to mix incomparable results in one file: another timing rule or another machine.
void check_same_conditions(const ResultsFile& file, const TimingRule& rule) {
  const std::string advice = "choose another folder with --out";
  const record::Json now = record::open_object(rule).json;
  const std::string cpu = cpu_device().name;
  for (size_t i = 0; i < file.earlier().size(); ++i) {
    if (file.earlier()[i].type != ResultsLine::Type::kRun) continue;
    const record::RunRecord run = read_line(file, i, record::run_from);
    for (const auto& [key, value] : now.items()) {
      if (key == "timeout_s" || !run.rule.json.contains(key)) continue;  // timeout_s does not affect results
      const record::Json& before = run.rule.json[key];
      LONGSPAN_CHECK_INPUT(before.is_null() || before == value,
                           "{} was started with {} = {}, not {}; resume it with that value, or {}",
                           file.path(), key, before.dump(), value.dump(), advice);
    }
    const std::string before = fact_text(run.machine.facts(), "cpu_model");
    LONGSPAN_CHECK_INPUT(before.empty() || before == cpu, "{} was started on another machine ({}); {}",
                         file.path(), before, advice);
  }
}

// Refuses to add results of another build of the program. Facts that only one side recorded are not compared.
void check_same_build(const ResultsFile& file) {
  const ResultsLine* last = nullptr;
  for (const ResultsLine& line : file.earlier()) {
    if (line.type == ResultsLine::Type::kRun) last = &line;
  }
  if (last == nullptr) return;
  const record::Json before = record::run_from(*last).software.json;
  const record::Json now = record::open_object(software_record()).json;
  std::vector<std::string> differences;
  for (const auto& [key, value] : now.items()) {
    const auto found = before.find(key);
    if (found == before.end() || found->is_null() || value.is_null() || *found == value) continue;
    differences.push_back(fmt::format("{} {}, now {}", key, record::text_of(*found), record::text_of(value)));
  }
  LONGSPAN_CHECK_INPUT(
      differences.empty(),
      "{}: its last run was of another build of longspan ({}); resume with that build, choose "
      "another folder with --out, or add --mix-builds",
      file.path(), fmt::join(differences, "; "));
}

// The last status of each case in the file.
std::map<std::string, record::Status> earlier_statuses(const ResultsFile& file) {
  std::map<std::string, record::Status> statuses;
  for (size_t i = 0; i < file.earlier().size(); ++i) {
    const ResultsLine& line = file.earlier()[i];
    if (line.type == ResultsLine::Type::kCase)
      statuses[line.id] = read_line(file, i, record::case_from).status;
  }
  return statuses;
}

// The cases of one kind of device, and the devices to measure them on.
struct Batch {
  std::vector<Device> devices;
  std::vector<Case> cases;
};

// The selected devices of a kind; the first if none was selected.
std::vector<Device> chosen(DeviceKind kind, const RunOptions& options, const std::vector<Device>& devices) {
  std::vector<Device> all, some;
  for (const Device& device : devices) {
    if (device.kind == kind) all.push_back(device);
  }
  for (const Device& device : all) {
    const bool named =
        std::find(options.devices.begin(), options.devices.end(), device.index) != options.devices.end();
    if (named || options.all_devices) some.push_back(device);
  }
  if (some.empty()) some.push_back(all.front());
  return some;
}

void check_devices(const RunOptions& options, const std::vector<Device>& devices) {
  int64_t gpus = 0;
  for (const Device& device : devices) gpus += device.kind == DeviceKind::kCuda ? 1 : 0;
  for (const int index : options.devices) {
    const bool exists =
        std::any_of(devices.begin(), devices.end(), [&](const Device& d) { return d.index == index; });
    LONGSPAN_CHECK_INPUT(exists, "--devices {}: there is no such GPU; this machine has {}", index, gpus);
  }
}

// One batch per kind of device. Cases whose device is missing go to the batch of the first device, which
// skips them.
std::vector<Batch> batches_of(const RunOptions& options, const std::vector<Case>& cases,
                              const Workbench& workbench, const std::vector<Device>& devices) {
  std::map<DeviceKind, size_t> places;
  std::vector<Batch> batches;
  for (const Case& c : cases) {
    const Device* device = device_for(workbench.find(c.kernel), devices);
    const DeviceKind kind = device == nullptr ? devices.front().kind : device->kind;
    const auto [place, is_new] = places.try_emplace(kind, batches.size());
    if (is_new) batches.push_back({chosen(kind, options, devices), {}});
    batches[place->second].cases.push_back(c);
  }
  for (const Batch& batch : batches) {
    const bool spread = std::any_of(batch.cases.begin(), batch.cases.end(),
                                    [](const Case& c) { return static_cast<bool>(c.parallelism); });
    LONGSPAN_CHECK_INPUT(
        !spread || batch.devices.size() == 1,
        "--devices divides single-device cases; a case with a strategy uses all GPUs anyway");
  }
  return batches;
}

// The device on which an earlier run measured each problem. The missing kernels are measured there as well.
std::map<std::string, size_t> homes_of(const ResultsFile& file, const std::vector<Device>& devices) {
  std::map<std::string, std::string> uuids;  // by run
  std::map<std::string, size_t> homes;
  for (size_t i = 0; i < file.earlier().size(); ++i) {
    const ResultsLine& line = file.earlier()[i];
    if (line.type == ResultsLine::Type::kRun)
      uuids[line.run] = fact_text(read_line(file, i, record::run_from).device.facts(), "uuid");
    if (line.type != ResultsLine::Type::kCase || uuids[line.run].empty()) continue;
    const record::CaseRecord result = read_line(file, i, record::case_from);
    if (result.status != record::Status::kOk) continue;
    for (size_t device = 0; device < devices.size(); ++device) {
      if (devices[device].uuid == uuids[line.run])
        homes[problem_of(read_line(file, i, [&](const ResultsLine&) { return case_of(result.workload); }))] =
            device;
    }
  }
  return homes;
}

// Divides the CPUs among devices measured at the same time, unless the user set the number of threads.
class ThreadShare {
 public:
  explicit ThreadShare(size_t devices) : set_(devices > 1 && std::getenv(kName) == nullptr) {
    const int share = std::max(1, available_cpus() / static_cast<int>(devices));
    if (set_) setenv(kName, std::to_string(share).c_str(), 1);
  }
  ~ThreadShare() {
    if (set_) unsetenv(kName);
  }
  ThreadShare(const ThreadShare&) = delete;
  ThreadShare& operator=(const ThreadShare&) = delete;

 private:
  static constexpr const char* kName = "LONGSPAN_THREADS";
  bool set_;
};

class Runner {
 public:
  Runner(const RunOptions& options, const Workbench& workbench, ResultsFile& file,
         const std::vector<Case>& cases, Earlier earlier)
      : options_(options),
        workbench_(workbench),
        file_(file),
        devices_(workbench.devices()),
        batches_(batches_of(options, cases, workbench, devices_)),
        ledger_(options, file, guard_, cases, std::move(earlier), most_devices(batches_)) {}

  RunSummary run() {
    for (const Batch& batch : batches_) run_batch(batch);
    return ledger_.finish();
  }

 private:
  static size_t most_devices(const std::vector<Batch>& batches) {
    size_t most = 1;
    for (const Batch& batch : batches) most = std::max(most, batch.devices.size());
    return most;
  }

  // On a machine with several GPUs, a device's processes see only that GPU: some frameworks use every GPU
  // that they see. Ranks see all of them.
  Variables visible_device(const Device& device, const std::vector<Case>& cases) const {
    const auto gpus = std::count_if(devices_.begin(), devices_.end(),
                                    [](const Device& d) { return d.kind == DeviceKind::kCuda; });
    const bool ranks = std::any_of(cases.begin(), cases.end(),
                                   [](const Case& c) { return static_cast<bool>(c.parallelism); });
    if (device.kind != DeviceKind::kCuda || device.uuid.empty() || gpus < 2 || ranks) return {};
    return {{"CUDA_VISIBLE_DEVICES", device.uuid}};
  }

  void run_batch(const Batch& batch) {
    ProblemAssignment assignment(portions_of(batch.cases), homes_of(file_, batch.devices),
                                 batch.devices.size());
    const auto run_device = [&](size_t number) {
      Device device = batch.devices[number];
      const Variables variables = visible_device(device, batch.cases);
      if (!variables.empty()) device.index = 0;
      DeviceRun run(options_, workbench_, ledger_, guard_, device, variables, devices_);
      if (!ledger_.may_begin() || !run.begin(batch.cases)) return;
      while (const std::optional<Portion> portion = assignment.next(number)) {
        for (const Case& c : portion->cases) {
          if (!ledger_.may_begin() || !run.run_one(c)) return;
        }
      }
    };
    if (batch.devices.size() == 1) {
      run_device(0);
      return;
    }
    const ThreadShare share(batch.devices.size());
    std::mutex mutex;
    std::exception_ptr error;  // the first one; the other devices stop after their current case
    const auto give_up = [&] {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
      ledger_.give_up();
    };
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < batch.devices.size(); ++i) {
      const auto run = [&, i] {
        try {
          run_device(i);
        } catch (...) {
          give_up();
        }
      };
      try {
        threads.push_back(start_thread(run));
      } catch (...) {
        give_up();
        break;
      }
    }
    threads.clear();  // joins them
    if (error) std::rethrow_exception(error);
  }

  const RunOptions& options_;
  const Workbench& workbench_;
  ResultsFile& file_;
  std::vector<Device> devices_;
  std::vector<Batch> batches_;
  SignalGuard guard_;
  Ledger ledger_;
};

}  // namespace

RunSummary run(const RunOptions& options, const Workbench& workbench) {
  check_devices(options, workbench.devices());
  ResultsFile file(options.folder, options.resume ? ResultsFile::Mode::kResume : ResultsFile::Mode::kFresh);
  check_same_conditions(file, options.rule);
  if (!options.mix_builds) check_same_build(file);
  const std::map<std::string, record::Status> statuses = earlier_statuses(file);
  std::vector<Case> cases;
  Earlier earlier;
  for (const Case& c : options.cases) {
    const std::string id = id_of(c);
    const auto found = statuses.find(id);
    const bool failed = found != statuses.end() && found->second == record::Status::kFailed;
    if (found == statuses.end() || (failed && !options.keep_failed)) cases.push_back(c);
    if (failed) earlier.failed.insert(id);
    if (found != statuses.end() && found->second == record::Status::kOk) ++earlier.ok;
  }
  return Runner(options, workbench, file, cases, std::move(earlier)).run();
}

}  // namespace longspan::bench
