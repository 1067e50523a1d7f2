// Ranks as threads: conformance, and the end of a group when a rank fails, hangs or disagrees.
#include "comm/threads.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/device_copies.h"
#include "conformance.h"

namespace longspan {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

class Conformance : public ::testing::TestWithParam<conformance::Check> {};

TEST_P(Conformance, HoldsForAnyNumberOfRanks) {
  for (int ranks : {1, 2, 3, 8}) {
    SCOPED_TRACE(ranks);
    EXPECT_NO_THROW(run_thread_ranks(ranks, milliseconds(30000), [](Communicator& communicator) {
      GetParam().run(communicator, {cpu_device(), {}});
    }));
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, Conformance, ::testing::ValuesIn(conformance::kChecks),
                         [](const auto& info) { return info.param.name; });

// A copy within a GPU may have to wait for a kernel. No copy from another GPU may stand behind it.
TEST(ThreadRanks, CopyTheirOwnRowsInAStreamOfTheirOwn) {
  for (const int ranks : {2, 4, 8}) {
    for (int rank = 0; rank < ranks; ++rank) {
      for (int peer = 0; peer < ranks; ++peer)
        EXPECT_EQ(stream_number(peer, rank) == stream_number(rank, rank), peer == rank)
            << peer << ' ' << rank;
      std::set<int> at_once;  // the peers that a rank copies from first
      for (int next = 1; next <= std::min(kPeerStreams, ranks - 1); ++next)
        at_once.insert(stream_number((rank + next) % ranks, rank));
      EXPECT_EQ(at_once.size(), static_cast<size_t>(std::min(kPeerStreams, ranks - 1)));
    }
  }
}

// Runs a body on all ranks and returns each rank's error, or "".
std::vector<std::string> errors_of(int ranks, milliseconds limit,
                                   const std::function<void(Communicator&)>& body) {
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  try {
    run_thread_ranks(ranks, limit, [&](Communicator& communicator) {
      try {
        body(communicator);
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(communicator.rank())] = error.what();
        throw;
      }
    });
  } catch (const std::exception&) {
  }
  return errors;
}

TEST(ThreadRanks, FailTogetherWithTheReasonOfTheFirst) {
  const auto errors = errors_of(4, milliseconds(30000), [](Communicator& communicator) {
    LONGSPAN_CHECK_INPUT(communicator.rank() != 2, "out of paper");
    communicator.barrier();
  });
  for (int rank : {0, 1, 3})
    EXPECT_THAT(errors[static_cast<size_t>(rank)], HasSubstr("rank 2 failed: out of paper"));
}

TEST(ThreadRanks, DoNotWaitForeverForOneThatHangs) {
  std::atomic<int> ended = 0;
  const auto errors = errors_of(3, milliseconds(50), [&](Communicator& communicator) {
    if (communicator.rank() == 1) {
      while (ended < 2) std::this_thread::yield();  // until the others have given up
      return;
    }
    try {
      communicator.barrier();
    } catch (...) {
      ++ended;
      throw;
    }
  });
  EXPECT_THAT(errors[0], HasSubstr("within 50 ms"));
  EXPECT_THAT(errors[2], HasSubstr("within 50 ms"));
}

TEST(ThreadRanks, NameTheRanksThatDisagreeOnALength) {
  const auto errors = errors_of(2, milliseconds(30000), [](Communicator& communicator) {
    char data[8] = {};
    const int peer = 1 - communicator.rank();
    const Message send{peer, data, 4},
        receive{peer, data + 4, communicator.rank() == 0 ? size_t{3} : size_t{4}};
    communicator.exchange({&send, 1}, {&receive, 1}, {})->wait({});
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 1 sent 4 bytes where rank 0 expects 3"));
}

TEST(ThreadRanks, RefuseAPeerOutsideTheGroup) {
  const auto errors = errors_of(2, milliseconds(30000), [](Communicator& communicator) {
    const Message send{2, nullptr, 0};
    communicator.exchange({&send, 1}, {}, {});
  });
  EXPECT_THAT(errors[0] + errors[1], HasSubstr("peer 2 is not one of the 2 ranks"));
}

}  // namespace
}  // namespace longspan
