// A machine that refuses threads or memory: each failure is an Error, never std::terminate.
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include <pthread.h>
#include <sys/resource.h>

#include "base/parallel.h"
#include "comm/threads.h"
#include "cp/execute/crew.h"
#include "longspan/parallel.h"
#include "unit/api/misuse.h"

namespace longspan {
namespace {

// While it lives, no thread can start: the stack that each would get fits into no address space.
class NoThreads {
 public:
  NoThreads() {
    pthread_attr_t none;
    pthread_getattr_default_np(&none);
    pthread_attr_getstacksize(&none, &before_);
    pthread_attr_setstacksize(&none, size_t{1} << 47);
    pthread_setattr_default_np(&none);
    pthread_attr_destroy(&none);
  }
  ~NoThreads() {
    pthread_attr_t usual;
    pthread_getattr_default_np(&usual);
    pthread_attr_setstacksize(&usual, before_);
    pthread_setattr_default_np(&usual);
    pthread_attr_destroy(&usual);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  size_t before_ = 0;
};

void expect_no_thread(const std::function<void()>& body) {
  const NoThreads none;
  expect_error(ErrorKind::kOutOfMemory, {"cannot start a thread"}, body);
}

TEST(ThreadFailure, ThePoolKeepsTheCallersThread) {
  ASSERT_GE(thread_count(), 1);  // the pool exists
  expect_no_thread([] { set_thread_count(4); });
  EXPECT_EQ(thread_count(), 1);
  int64_t sum = 0;
  parallel_for(100, [&](int64_t i, int thread) {
    EXPECT_EQ(thread, 0);
    sum += i;
  });
  EXPECT_EQ(sum, 4950);
  set_thread_count(3);
  EXPECT_EQ(thread_count(), 3);
  set_thread_count(available_cpus());
}

TEST(ThreadFailure, RanksEndTogether) {
  bool ran = false;
  expect_no_thread([&] { run_ranks(Group::threads(3), [&](const Group&) { ran = true; }); });
  EXPECT_FALSE(ran);
  expect_no_thread([] {
    Crew(thread_communicators(2, std::chrono::milliseconds(60000)), {cpu_device(), cpu_device()});
  });
}

// A sanitizer maps terabytes itself.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kCanLimitMemory = false;
#else
constexpr bool kCanLimitMemory = true;
#endif

// For a child process: it may map so much more than it has, and each thread takes a stack of 64 MiB.
void limit_memory(size_t bytes) {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t most = pages * 4096 + bytes;
  const rlimit limit{most, most};
  setrlimit(RLIMIT_AS, &limit);
  pthread_attr_t attributes;
  pthread_getattr_default_np(&attributes);
  pthread_attr_setstacksize(&attributes, size_t{64} << 20);
  pthread_setattr_default_np(&attributes);
}

// Ends the child with the kind and message of the Error that body throws.
void exit_with_error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    std::fprintf(stderr, "Error %d: %s\n", static_cast<int>(error.kind()), error.what());
    std::_Exit(3);
  }
  std::_Exit(0);
}

// Rank 0 runs and waits for rank 1, whose thread does not start.
TEST(ThreadFailure, RanksThatRunDoNotWaitForOneThatCannotStart) {
  if (!kCanLimitMemory) GTEST_SKIP() << "under a sanitizer";
  EXPECT_EXIT(
      {
        const auto ends = Group::threads(2, std::chrono::hours(1));
        limit_memory(size_t{100} << 20);
        exit_with_error_of(
            [&] { run_ranks(ends, [](const Group& mine) { mine.communicator().barrier(); }); });
      },
      testing::ExitedWithCode(3), "Error 2: cannot start a thread");
}

TEST(MemoryFailure, APatternThatDoesNotFitIsAnError) {
  if (!kCanLimitMemory) GTEST_SKIP() << "under a sanitizer";
  EXPECT_EXIT(
      {
        limit_memory(size_t{100} << 20);
        exit_with_error_of([] { pattern_masks("uniform_block_sparse", 8 << 20); });
      },
      testing::ExitedWithCode(3), "Error 2: out of memory");
}

}  // namespace
}  // namespace longspan
