#include "base/parallel.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <vector>

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace longspan {
namespace {

class ParallelTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { set_thread_count(GetParam()); }
  void TearDown() override { set_thread_count(available_cpus()); }
};

TEST_P(ParallelTest, EachIndexOnce) {
  EXPECT_EQ(thread_count(), GetParam());
  for (int64_t count : {0, 1, 2, 3, 7, 1000}) {
    std::vector<int> calls(count, 0);  // plain ints, so that the thread sanitizer reports a race
    std::atomic<bool> bad_thread = false;
    parallel_for(count, [&](int64_t i, int thread) {
      ++calls[i];
      if (thread < 0 || thread >= GetParam()) bad_thread = true;
    });
    EXPECT_EQ(std::accumulate(calls.begin(), calls.end(), int64_t{0}), count);
    EXPECT_THAT(calls, testing::Each(1));
    EXPECT_FALSE(bad_thread);
  }
}

TEST_P(ParallelTest, ScratchOfAThreadIsItsOwn) {
  std::vector<int64_t> sums(thread_count() * 64, 0);
  for (int repeat = 0; repeat < 50; ++repeat) {
    parallel_for(100, [&](int64_t i, int thread) { sums[thread * 64] += i; });
  }
  EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), int64_t{0}), 50 * 4950);
}

// The second half waits for the exception and then sleeps, so the other threads cannot finish before they see
// it, however late the throwing thread is scheduled.
TEST_P(ParallelTest, RethrowsTheException) {
  std::atomic<int> calls = 0;
  std::atomic<bool> thrown = false;
  const auto failing = [&] {
    parallel_for(100000, [&](int64_t i, int) {
      ++calls;
      if (i == 3) {
        thrown = true;
        throw std::runtime_error("index 3");
      }
      if (i < 50000) return;
      while (!thrown) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
  };
  EXPECT_THAT(failing, testing::ThrowsMessage<std::runtime_error>("index 3"));
  EXPECT_LT(calls, 100000);
  // The pool still works afterwards.
  std::atomic<int> after = 0;
  parallel_for(10, [&](int64_t, int) { ++after; });
  EXPECT_EQ(after, 10);
}

TEST_P(ParallelTest, NestedCallsRunOnTheirOwnThread) {
  std::atomic<int> inner = 0;
  std::atomic<bool> moved = false;
  parallel_for(8, [&](int64_t, int) {
    const auto self = std::this_thread::get_id();
    parallel_for(5, [&](int64_t, int thread) {
      ++inner;
      if (std::this_thread::get_id() != self || thread != 0) moved = true;
    });
  });
  EXPECT_EQ(inner, 40);
  EXPECT_FALSE(moved);
}

TEST_P(ParallelTest, CallersOnSeveralThreadsDoNotWaitForEachOther) {
  // The bodies of the two calls meet: if one call waited for the other, neither would end.
  std::atomic<int> arrived = 0;
  const auto caller = [&] {
    parallel_for(1, [&](int64_t, int) {
      ++arrived;
      while (arrived < 2) std::this_thread::yield();
    });
  };
  std::thread other(caller);
  caller();
  other.join();
  EXPECT_EQ(arrived, 2);

  std::vector<std::thread> callers;
  std::vector<int64_t> sums(4, 0);
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&, c] {
      for (int repeat = 0; repeat < 100; ++repeat) {
        std::vector<int> calls(20, 0);
        parallel_for(20, [&](int64_t i, int) { calls[i] = 1; });
        sums[c] += std::accumulate(calls.begin(), calls.end(), 0);
      }
    });
  }
  for (auto& thread : callers) thread.join();
  EXPECT_THAT(sums, testing::Each(2000));
}

INSTANTIATE_TEST_SUITE_P(Threads, ParallelTest, testing::Values(1, 2, 3, 8));

TEST(Parallel, UsesAllThreadsAtOnce) {
  set_thread_count(3);
  std::atomic<int> arrived = 0;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  parallel_for(3, [&](int64_t, int) {
    ++arrived;
    while (arrived < 3 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  });
  EXPECT_EQ(arrived, 3);
  set_thread_count(available_cpus());
}

TEST(Parallel, ASingleBodyLeavesTheThreadsToItsCalls) {
  set_thread_count(3);
  std::atomic<int> waiting = 0;
  parallel_for(1, [&](int64_t, int) {
    parallel_for(3, [&](int64_t, int) {
      ++waiting;
      while (waiting < 3) std::this_thread::yield();
    });
  });
  EXPECT_EQ(waiting, 3);
}

TEST(Parallel, CountsTheCpusOfItsAffinity) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(available_cpus(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_LE(available_cpus(), CPU_COUNT(&before));
  EXPECT_GE(available_cpus(), 1);
}

TEST(Parallel, RefusesANonsenseThreadCount) {
  EXPECT_THROW(set_thread_count(0), Error);
  EXPECT_THROW(set_thread_count(-2), Error);
}

#if !defined(__SANITIZE_THREAD__)  // the sanitizer supports no threads after a threaded process forks
TEST(Parallel, AForkedChildHasItsOwnPool) {
  set_thread_count(4);
  std::atomic<int> calls = 0;
  parallel_for(10, [&](int64_t, int) { ++calls; });
  const pid_t child = fork();
  if (child == 0) {
    std::atomic<int> mine = 0;
    parallel_for(100, [&](int64_t, int) { ++mine; });
    _exit(mine == 100 && thread_count() == 4 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  set_thread_count(available_cpus());
}

// The variable is read once per process, so each value needs its own process.
TEST(ParallelDeathTest, ReadsLongspanThreads) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        setenv("LONGSPAN_THREADS", "5", 1);
        _exit(thread_count() == 5 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
  for (const char* wrong : {"0", "-1", "two", "4x", "1e3", "99999999999999"}) {
    EXPECT_EXIT(
        {
          setenv("LONGSPAN_THREADS", wrong, 1);
          try {
            thread_count();
          } catch (const Error& error) {
            fmt::print(stderr, "{}", error.what());
            _exit(error.kind() == ErrorKind::kInput ? 3 : 4);
          }
          _exit(0);
        },
        testing::ExitedWithCode(3), "LONGSPAN_THREADS='.*': must be a whole number from 1 to");
  }
}
#endif

}  // namespace
}  // namespace longspan
