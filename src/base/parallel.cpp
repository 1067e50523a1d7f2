// The persistent thread pool behind parallel_for.
#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "base/error.h"
#include "base/thread.h"

namespace longspan {
namespace {

constexpr int kMaxThreads = 4096;

int cpus_by_affinity() {
  // The kernel rejects a set smaller than its own, so retry with larger sets.
  for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
    cpu_set_t* set = CPU_ALLOC(cpus);
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(cpus);
    const bool known = sched_getaffinity(0, bytes, set) == 0;
    const int count = known ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (known) return std::max(count, 1);
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// The container's CPU quota in whole CPUs, rounded up; kMaxThreads without a quota. More threads than this
// only share the quota, and waiting threads waste it by spinning.
int cpus_by_quota() {
  double quota = 0, period = 0;
  std::ifstream v2("/sys/fs/cgroup/cpu.max");
  if (!(v2 >> quota >> period)) {
    std::ifstream v1_quota("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
    std::ifstream v1_period("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
    if (!(v1_quota >> quota) || !(v1_period >> period)) return kMaxThreads;
  }
  if (quota <= 0 || period <= 0) return kMaxThreads;
  return static_cast<int>(std::clamp((quota + period - 1) / period, 1.0, double{kMaxThreads}));
}

int initial_thread_count() {
  const char* text = std::getenv("LONGSPAN_THREADS");
  if (text == nullptr || *text == '\0') return std::min(available_cpus(), kMaxThreads);
  int threads = 0;
  const std::string_view value = text;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), threads);
  LONGSPAN_CHECK_INPUT(
      error == std::errc() && end == value.data() + value.size() && threads >= 1 && threads <= kMaxThreads,
      "LONGSPAN_THREADS='{}': must be a whole number from 1 to {}", value, kMaxThreads);
  return threads;
}

using Body = std::function<void(int64_t, int)>;

// One parallel_for. It lives on the caller's stack: the caller returns only when no worker is inside.
struct Job {
  const Body& body;
  const int64_t count;
  std::atomic<int64_t> next{0};
  std::mutex error_mutex;
  std::exception_ptr error;

  void run(int thread) noexcept {
    for (;;) {
      const int64_t index = next.fetch_add(1, std::memory_order_relaxed);
      if (index >= count) return;
      try {
        body(index, thread);
      } catch (...) {
        std::scoped_lock lock(error_mutex);
        if (!error) error = std::current_exception();
        next.store(count, std::memory_order_relaxed);  // the other threads stop at their next index
      }
    }
  }
};

// True on a thread that is running a body; nested calls then run serially.
thread_local bool t_inside = false;

struct InsideScope {
  InsideScope() { t_inside = true; }
  ~InsideScope() { t_inside = false; }
};

class ThreadPool {
 public:
  explicit ThreadPool(int threads) { start(threads); }

  int threads() const { return threads_.load(std::memory_order_relaxed); }

  void resize(int threads) {
    std::scoped_lock busy(busy_);
    stop();
    start(threads);  // or throws, and leaves a pool of the calling thread alone
  }

  void run(int64_t count, const Body& body) {
    // A second caller on another thread (a rank, for example) computes serially. Waiting could deadlock: the
    // first caller's body may be waiting for it.
    std::unique_lock busy(busy_, std::try_to_lock);
    Job job{.body = body, .count = count, .error_mutex = {}, .error = nullptr};
    if (!busy.owns_lock() || workers_.empty()) {
      if (busy.owns_lock()) busy.unlock();
      const InsideScope inside;
      job.run(0);
    } else {
      {
        std::scoped_lock lock(mutex_);
        job_ = &job;
        ++generation_;
      }
      if (count - 1 < static_cast<int64_t>(workers_.size())) {
        for (int64_t i = 1; i < count; ++i) wake_.notify_one();
      } else {
        wake_.notify_all();
      }
      {
        const InsideScope inside;
        job.run(0);
      }
      // Workers that wake later find no job: a short loop does not wait for sleeping threads.
      std::unique_lock lock(mutex_);
      job_ = nullptr;
      done_.wait(lock, [&] { return active_ == 0; });
    }
    if (job.error) std::rethrow_exception(job.error);
  }

 private:
  void start(int threads) {
    threads_ = 1;
    stopping_ = false;
    try {
      workers_.reserve(static_cast<size_t>(threads));  // a thread that cannot be kept could not be joined
      for (int i = 1; i < threads; ++i) workers_.push_back(start_thread([this, i] { work(i); }));
    } catch (...) {
      stop();
      throw;
    }
    threads_ = threads;
  }

  void stop() {
    {
      std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    workers_.clear();  // joins them
  }

  void work(int thread) {
    t_inside = true;
    uint64_t seen = 0;
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return stopping_ || (job_ != nullptr && generation_ != seen); });
      if (stopping_) return;
      seen = generation_;
      Job& job = *job_;
      ++active_;
      lock.unlock();
      job.run(thread);
      lock.lock();
      if (--active_ == 0) done_.notify_one();
    }
  }

  std::mutex busy_;  // held by the caller whose job is running
  std::vector<std::jthread> workers_;
  std::atomic<int> threads_{1};

  std::mutex mutex_;  // guards the members below
  std::condition_variable wake_, done_;
  Job* job_ = nullptr;
  uint64_t generation_ = 0;
  int active_ = 0;  // workers inside a job
  bool stopping_ = false;
};

// The pool is never destroyed: its threads may be needed until the process ends. A forked child has none of
// these threads, so it creates its own pool.
std::atomic<ThreadPool*> g_pool{nullptr};
std::atomic<int> g_forked_threads{0};  // in a forked child: the parent's number of threads
std::mutex& pool_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

ThreadPool& thread_pool() {
  ThreadPool* existing = g_pool.load(std::memory_order_acquire);
  if (existing != nullptr) return *existing;
  std::scoped_lock lock(pool_mutex());
  existing = g_pool.load(std::memory_order_acquire);
  if (existing == nullptr) {
    static const int registered = pthread_atfork([] { pool_mutex().lock(); }, [] { pool_mutex().unlock(); },
                                                 [] {
                                                   if (ThreadPool* parent = g_pool.exchange(nullptr))
                                                     g_forked_threads = parent->threads();
                                                   t_inside = false;
                                                   pool_mutex().unlock();
                                                 });
    static_cast<void>(registered);
    const int forked = g_forked_threads.load();
    existing = new ThreadPool(forked > 0 ? forked : initial_thread_count());
    g_pool.store(existing, std::memory_order_release);
  }
  return *existing;
}

}  // namespace

AloneScope::AloneScope() : before_(t_inside) {
  t_inside = true;
}

AloneScope::~AloneScope() {
  t_inside = before_;
}

int available_cpus() {
  return std::min(cpus_by_affinity(), cpus_by_quota());
}

int thread_count() {
  return thread_pool().threads();
}

void set_thread_count(int threads) {
  LONGSPAN_CHECK_INPUT(threads >= 1 && threads <= kMaxThreads, "{} threads: must be from 1 to {}", threads,
                       kMaxThreads);
  LONGSPAN_CHECK(!t_inside, "set_thread_count inside a parallel_for");
  thread_pool().resize(threads);
}

void parallel_for(int64_t count, const Body& body) {
  if (count <= 0) return;
  if (t_inside || count == 1) {
    for (int64_t i = 0; i < count; ++i) body(i, 0);
    return;
  }
  thread_pool().run(count, body);
}

}  // namespace longspan
