// Ranks that meet over TCP: connection, broadcasts of rank 0, barriers, and reports of failures and deaths.
#include "comm/rendezvous.h"

#include <atomic>
#include <csignal>
#include <functional>
#include <future>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "meeting_place.h"

namespace longspan {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// Runs body on `ranks` threads, one per rank; returns each rank's error, or "".
std::vector<std::string> meet(int ranks, milliseconds limit,
                              const std::function<void(int, Rendezvous&)>& body) {
  const int port = free_port();
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const auto rendezvous = Rendezvous::meet(place(rank, ranks, port), limit);
        body(rank, *rendezvous);
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

TEST(Rendezvous, CarriesRank0sWordAndBarriers) {
  for (int ranks : {1, 2, 5}) {
    std::atomic<int> arrived{0};
    const auto errors = meet(ranks, milliseconds(20000), [&](int rank, Rendezvous& rendezvous) {
      for (const std::string& word : {std::string("first"), std::string(1000, '\0'), std::string()})
        LONGSPAN_CHECK(rendezvous.broadcast(rank == 0 ? word : "other") == word, "another word");
      for (int round = 1; round <= 3; ++round) {
        ++arrived;
        rendezvous.barrier();
        LONGSPAN_CHECK(arrived >= round * ranks, "a barrier let a rank through");
        rendezvous.barrier();
      }
    });
    EXPECT_THAT(errors, testing::Each("")) << ranks;
  }
}

// Two nested meetings, as a run and each of its cases use them.
TEST(Rendezvous, MeetsAgainAtAPortWhereAMeetingGoesOn) {
  const int port = free_port();
  std::vector<std::string> errors(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const auto run = Rendezvous::meet(place(rank, 3, port), milliseconds(20000), std::chrono::hours(1));
        for (int number = 0; number < 3; ++number) {
          LONGSPAN_CHECK(run->broadcast(rank == 0 ? "begin" : "") == "begin", "another word");
          const auto of_case = Rendezvous::meet(place(rank, 3, port), milliseconds(20000));
          LONGSPAN_CHECK(of_case->broadcast(fmt::format("case {}", number)) == fmt::format("case {}", number),
                         "another word");
        }
        LONGSPAN_CHECK(!run->left(), "the first meeting ended with one of the others");
        run->barrier();
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(errors, testing::Each(""));
}

TEST(Rendezvous, SaysWhenRank0HasLeft) {
  std::promise<void> rank_0_met;  // a failure before this would be reported as rank 0's own
  const auto errors = meet(2, milliseconds(20000), [&](int rank, Rendezvous& rendezvous) {
    if (rank == 0) rank_0_met.set_value();
    if (rank == 1) {
      rank_0_met.get_future().wait();
      rendezvous.fail("which is not the same");
    }
    for (int i = 0; rank == 1 && !rendezvous.left(); ++i) {
      LONGSPAN_CHECK(i < 2000, "nobody said so");
      std::this_thread::sleep_for(milliseconds(10));
    }
    LONGSPAN_CHECK(rank == 1 || !rendezvous.left(), "rank 0 has not left itself");
    while (rank == 0 && rendezvous.failure().empty()) std::this_thread::sleep_for(milliseconds(1));
  });
  EXPECT_THAT(errors, testing::Each(""));
}

TEST(Rendezvous, TellsAllOfAFailure) {
  for (int failing : {0, 2}) {
    const auto errors = meet(4, milliseconds(20000), [&](int rank, Rendezvous& rendezvous) {
      if (rank == failing) {
        rendezvous.fail("out of paper");
        return;
      }
      rendezvous.barrier();
    });
    for (int rank = 0; rank < 4; ++rank) {
      if (rank != failing) {
        EXPECT_THAT(errors[static_cast<size_t>(rank)], HasSubstr("out of paper"));
      }
    }
  }
}

TEST(Rendezvous, NamesTheRanksThatDoNotCome) {
  const int port = free_port();
  try {
    Rendezvous::meet(place(0, 3, port), milliseconds(100));
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("did not come to 127.0.0.1:"));
    EXPECT_THAT(error.what(), HasSubstr("1, 2"));
  }
  EXPECT_THROW(Rendezvous::meet(place(1, 3, port), milliseconds(100)), Error);
}

TEST(Rendezvous, DoesNotWaitForeverAtABarrier) {
  const auto errors = meet(2, milliseconds(800), [&](int rank, Rendezvous& rendezvous) {
    if (rank == 0) rendezvous.barrier();
    if (rank == 1) std::this_thread::sleep_for(milliseconds(1500));
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 0: not all ranks came to a barrier within 800 ms"));
}

// A killed process sends nothing; the others must still learn of its death.
TEST(Rendezvous, TellsAllOfADeath) {
  for (int dying : {0, 1}) {
    const int port = free_port();
    std::vector<pid_t> children;
    for (int rank = 0; rank < 3; ++rank) {
      const pid_t child = fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        int code = 1;
        try {
          const auto rendezvous = Rendezvous::meet(place(rank, 3, port), milliseconds(20000));
          if (rank == dying) kill(getpid(), SIGKILL);
          rendezvous->barrier();
        } catch (const std::exception& error) {
          const std::string wanted = fmt::format("rank {} has died", dying);
          code = std::string(error.what()).find(wanted) != std::string::npos ? 0 : 2;
        }
        _exit(code);
      }
      children.push_back(child);
    }
    for (int rank = 0; rank < 3; ++rank) {
      int status = 0;
      waitpid(children[static_cast<size_t>(rank)], &status, 0);
      if (rank == dying) {
        EXPECT_TRUE(WIFSIGNALED(status));
      } else {
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << rank << ": " << status;
      }
    }
  }
}

}  // namespace
}  // namespace longspan
