#include "bench/child_process.h"

#include <csignal>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace longspan::bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Outcome {
  ChildEnd end;
  std::vector<std::string> lines;
};

Outcome shell(const std::string& script, double limit_s = 60, const std::string& input = "") {
  SignalGuard guard;
  Outcome outcome;
  outcome.end = run_child("/bin/sh", {"-c", script}, input, limit_s, guard,
                          [&](const std::string& line) { outcome.lines.push_back(line); });
  return outcome;
}

TEST(ChildProcess, HandsOutLinesAndTheExitStatus) {
  const Outcome outcome = shell("echo one >&3; printf 'two\\nhalf' >&3; exit 7");
  EXPECT_EQ(outcome.end.how, ChildEnd::How::kExited);
  EXPECT_EQ(outcome.end.status, 7);
  EXPECT_THAT(outcome.lines, ElementsAre("one", "two"));
}

TEST(ChildProcess, GivesItsInput) {
  EXPECT_THAT(shell("read x; echo got $x >&3", 60, "this\n").lines, ElementsAre("got this"));
}

TEST(ChildProcess, HandsDownTheDescriptorsThatItIsToInherit) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const int read_end = fcntl(ends[0], F_DUPFD_CLOEXEC, 10), write_end = fcntl(ends[1], F_DUPFD_CLOEXEC, 10);
  SignalGuard guard;
  std::vector<std::string> lines;
  const auto listen = [&](const std::string& line) { lines.push_back(line); };
  const std::vector<int> inherited = {read_end, write_end};
  // A child writes into the pipe, and the next one reads what it wrote.
  run_child("/bin/sh", {"-c", "echo hello >&5"}, "", 60, guard, listen, inherited);
  run_child("/bin/sh", {"-c", "read x <&4; echo got $x >&3"}, "", 60, guard, listen, inherited);
  EXPECT_THAT(lines, ElementsAre("got hello"));
  for (const int fd : {ends[0], ends[1], read_end, write_end}) close(fd);
}

TEST(ChildProcess, GetsTheEnvironmentWithWhatWasSet) {
  setenv("LONGSPAN_TEST_KEPT", "kept", 1);
  setenv("LONGSPAN_TEST_CHANGED", "before", 1);
  SignalGuard guard;
  std::vector<std::string> lines;
  run_child("/bin/sh", {"-c", "echo $LONGSPAN_TEST_KEPT $LONGSPAN_TEST_CHANGED $LONGSPAN_TEST_NEW >&3"}, "",
            60, guard, [&](const std::string& line) { lines.push_back(line); }, {},
            {{"LONGSPAN_TEST_CHANGED", "after"}, {"LONGSPAN_TEST_NEW", "new"}});
  EXPECT_THAT(lines, ElementsAre("kept after new"));
}

TEST(ChildProcess, SurvivesAChildThatReadsNothing) {
  EXPECT_EQ(shell("exit 3", 60, std::string(1 << 20, 'x')).end.status, 3);
}

TEST(ChildProcess, KeepsTheEndOfItsOutput) {
  const Outcome outcome =
      shell("i=0; while [ $i -lt 5000 ]; do echo line $i; i=$((i+1)); done; echo last words >&2; exit 1");
  EXPECT_THAT(outcome.end.error_output, HasSubstr("line 4999\nlast words"));
  EXPECT_LE(outcome.end.error_output.size(), 4096u);
}

TEST(ChildProcess, PassesLongLines) {
  const Outcome outcome = shell("head -c 300000 /dev/zero | tr '\\0' x >&3; echo >&3");
  ASSERT_EQ(outcome.lines.size(), 1u);
  EXPECT_EQ(outcome.lines[0].size(), 300000u);
}

TEST(ChildProcess, NamesTheSignal) {
  const Outcome outcome = shell("kill -SEGV $$");
  EXPECT_EQ(outcome.end.how, ChildEnd::How::kSignalled);
  EXPECT_EQ(outcome.end.status, SIGSEGV);
  EXPECT_EQ(signal_name(SIGSEGV), "SIGSEGV");
}

TEST(ChildProcess, IsKilledAtTheLimitWithAllThatItStarted) {
  const Outcome outcome = shell("sleep 1000 & echo $! >&3; wait", 0.3);
  EXPECT_EQ(outcome.end.how, ChildEnd::How::kTimedOut);
  ASSERT_EQ(outcome.lines.size(), 1u);
  // Dead at once, and reaped by init after a moment.
  const pid_t grandchild = std::stoi(outcome.lines[0]);
  for (int i = 0; i < 200 && kill(grandchild, 0) == 0; ++i) usleep(10000);
  EXPECT_NE(kill(grandchild, 0), 0);
}

TEST(ChildProcess, DoesNotWaitForWhatTheChildLeftBehind) {
  const Outcome outcome = shell("sleep 1000 & exit 0", 30);
  EXPECT_EQ(outcome.end.how, ChildEnd::How::kExited);
}

TEST(ChildProcess, AnInterruptEndsIt) {
  SignalGuard guard;
  EXPECT_FALSE(guard.interrupted());
  kill(getpid(), SIGINT);  // blocked by the guard, so it waits
  const ChildEnd end = run_child("/bin/sh", {"-c", "sleep 1000"}, "", 60, guard, [](const std::string&) {});
  EXPECT_EQ(end.how, ChildEnd::How::kInterrupted);
  EXPECT_TRUE(guard.interrupted());
}

}  // namespace
}  // namespace longspan::bench
