// Ranks as processes: rank 0 announces cases, the others join them, and a deadline ends hung cases.
#include "bench/run/team.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "bench/case/phase_times.h"
#include "bench/measure/parallel_measure.h"
#include "bench/run/isolation.h"
#include "bench/spec/values.h"

namespace longspan::bench {
namespace {

using std::chrono::seconds;

constexpr seconds kMeetingLimit{60};
// Rank 0 may run other cases for hours between two shared ones. Its death is noticed at once.
constexpr std::chrono::hours kLongest{24 * 365};
constexpr double kWriteGrace_s = 10;

// Calls on_late on its own thread unless it is destroyed within the limit.
class Deadline {
 public:
  Deadline(double limit_s, std::function<void()> on_late)
      : thread_([this, limit_s, on_late = std::move(on_late)] {
          std::unique_lock lock(mutex_);
          if (!changed_.wait_for(lock, std::chrono::duration<double>(limit_s), [&] { return over_; }))
            on_late();
        }) {}
  ~Deadline() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace

Team::Team(const Launch& launch)
    : launch_(launch), meeting_(Rendezvous::meet(launch, kMeetingLimit, kLongest)) {}

Team::~Team() {
  try {
    if (rank() == 0) meeting_->broadcast("");
  } catch (const std::exception&) {  // the other processes have already ended
  }
}

void Team::call(const Case& c) {
  const std::string failure = meeting_->failure();
  if (!failure.empty()) throw Error(ErrorKind::kPeer, failure, __FILE__, __LINE__, "failure.empty()");
  meeting_->broadcast(id_of(c));
}

// A launcher ends all processes once one has failed. Rank 0 needs time to notice the failure, at the latest
// at the end of its case, and to record the reason.
void Team::wait_for_rank_0(double timeout_s) {
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_s + kWriteGrace_s);
  while (!meeting_->left() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

const Case* Team::next(const std::vector<Case>& cases, double timeout_s) {
  try {
    const std::string id = meeting_->broadcast("");
    if (id.empty()) return nullptr;
    const auto found =
        std::find_if(cases.begin(), cases.end(), [&](const Case& c) { return id_of(c) == id; });
    if (found != cases.end()) return &*found;
    const std::string reason = fmt::format(
        "rank {}: its suite lacks the case {} of rank 0; start all ranks with one command, suite and masks",
        rank(), printable(id));
    meeting_->fail(reason);
    throw Error(ErrorKind::kPeer, reason, __FILE__, __LINE__, "found != cases.end()");
  } catch (const Error&) {
    wait_for_rank_0(timeout_s);
    throw;
  }
}

bool Team::follow(int gpu, const TimingRule& rule, const std::vector<Case>& cases,
                  const Workbench& workbench) {
  const std::vector<Device> devices = workbench.devices();
  while (const Case* c = next(cases, rule.timeout_s)) {
    const Kernel* kernel = workbench.find(c->kernel);
    const auto device = std::find_if(devices.begin(), devices.end(), [&](const Device& d) {
      return kernel != nullptr && d.kind == kernel->device_kind() &&
             (d.kind != DeviceKind::kCuda || d.index == gpu);
    });
    if (device == devices.end()) continue;  // rank 0 then reports a timeout for this rank
    if (c->parallelism.transport != Transport::kMpi) {
      SignalGuard guard;
      if (!Isolation(guard).run_case(*c, *device, rule)) return false;
      continue;
    }
    const auto report_late = [&](const CaseAnswer& late) {
      fmt::print(stderr, "rank {}: {}\n", rank(), printable(late.outcome.reason));
      wait_for_rank_0(rule.timeout_s);
    };
    if (!run_over_mpi(*c, *device, rule, workbench, alarm(), report_late).group_failed) continue;
    wait_for_rank_0(rule.timeout_s);
    return false;
  }
  return true;
}

CaseAnswer run_over_mpi(const Case& c, const Device& device, const TimingRule& rule,
                        const Workbench& workbench, Alarm& alarm,
                        const std::function<void(CaseAnswer)>& on_late) {
  std::mutex mutex;  // guards the variables below
  PhaseTimes times;
  std::string phase;
  const auto enter = [&](const std::string& text) {
    const std::lock_guard lock(mutex);
    phase = text;
    times.enter(text);
  };
  const Deadline deadline(rule.timeout_s, [&] {
    std::string where;
    {
      const std::lock_guard lock(mutex);
      where = phase;
    }
    on_late(
        CaseAnswer::failed(fmt::format("hung: not finished within the time limit of {} in {}; raise it with "
                                       "--timeout-s or timeout_s",
                                       format_duration(rule.timeout_s), where)));
    std::_Exit(1);
  });
  CaseAnswer answer;
  try {
    const auto testbed = workbench.testbed(device);
    answer = run_case_here(workbench, *testbed, c, rule, enter, &alarm);
  } catch (const std::exception& error) {
    answer = CaseAnswer::failed(error.what());
    answer.group_failed = true;
  }
  answer.outcome.phases_s = times.times();
  return answer;
}

}  // namespace longspan::bench
