// Child processes: lines, descriptors, limits, signals, and what remains after them.
#include "bench/run/child_process.h"

#include <csignal>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
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
  ChildProcess child("/bin/sh", {"-c", script});
  if (!input.empty()) child.send(input);
  outcome.end = child.listen(limit_s, guard, [&](const std::string& line) {
    outcome.lines.push_back(line);
    return false;
  });
  return outcome;
}

TEST(ChildProcess, DeliversLinesAndTheExitStatus) {
  const Outcome outcome = shell("echo one >&3; printf 'two\\nhalf' >&3; exit 7");
  EXPECT_EQ(outcome.end.how, ChildEnd::How::kExited);
  EXPECT_EQ(outcome.end.status, 7);
  EXPECT_THAT(outcome.lines, ElementsAre("one", "two"));
}

TEST(ChildProcess, SendsInput) {
  EXPECT_THAT(shell("read x; echo got $x >&3", 60, "this").lines, ElementsAre("got this"));
}

TEST(ChildProcess, AnswersSeveralRequests) {
  SignalGuard guard;
  ChildProcess child("/bin/sh", {"-c", "while read x; do echo got $x >&3; echo printed $x; done; exit 4"});
  for (const char* request : {"one", "two", "three"}) {
    child.send(request);
    std::string answer;
    const ChildEnd end = child.listen(60, guard, [&](const std::string& line) {
      answer = line;
      return true;
    });
    EXPECT_EQ(end.how, ChildEnd::How::kAnswered);
    EXPECT_EQ(answer, std::string("got ") + request);
    EXPECT_FALSE(child.ended());
  }
  child.close_input();
  const ChildEnd end = child.listen(60, guard, [](const std::string&) { return false; });
  EXPECT_EQ(end.how, ChildEnd::How::kExited);
  EXPECT_EQ(end.status, 4);
  EXPECT_TRUE(child.ended());
}

TEST(ChildProcess, IsEndedByTheDestructor) {
  SignalGuard guard;
  pid_t pid = 0;
  {
    ChildProcess child("/bin/sh", {"-c", "echo $$ >&3; sleep 1000"});
    child.listen(60, guard, [&](const std::string& line) {
      pid = std::stoi(line);
      return true;
    });
    EXPECT_EQ(kill(pid, 0), 0);
  }
  EXPECT_NE(kill(pid, 0), 0);
}

TEST(ChildProcess, ReportsAChildThatDiedBeforeARequest) {
  SignalGuard guard;
  ChildProcess child("/bin/sh", {"-c", "exit 5"});
  while (!child.ended()) usleep(1000);
  child.send("anybody?");
  const ChildEnd end = child.listen(60, guard, [](const std::string&) { return true; });
  EXPECT_EQ(end.how, ChildEnd::How::kExited);
  EXPECT_EQ(end.status, 5);
}

// The child's side runs in this process, since no shell receives descriptors from a socket.
TEST(Requests, ArriveWithTheirDescriptors) {
  int socket[2], ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socket), 0);
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(socket[1]);
    Requests requests(socket[0]);
    while (const auto request = requests.next()) {
      for (const int fd : request->descriptors) {
        if (write(fd, request->line.data(), request->line.size()) < 0) _exit(1);
        close(fd);
      }
      if (write(socket[0], "done", 4) != 4) _exit(1);
    }
    _exit(7);
  }
  close(socket[0]);
  const auto written_of = [&](const std::string& line, const std::vector<int>& descriptors) {
    pass_line(socket[1], line, descriptors);
    char text[64] = {};
    if (read(socket[1], text, 4) != 4) return std::string("no answer");
    const ssize_t got = descriptors.empty() ? 0 : read(ends[0], text, sizeof text);
    return std::string(text, static_cast<size_t>(got));
  };
  EXPECT_EQ(written_of("first", {ends[1], ends[1]}), "firstfirst");
  EXPECT_EQ(written_of("middle", {}), "");
  EXPECT_EQ(written_of("last", {ends[1]}), "last");
  close(socket[1]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  close(ends[0]);
  close(ends[1]);
}

TEST(ChildProcess, GetsTheEnvironmentWithAddedVariables) {
  setenv("LONGSPAN_TEST_KEPT", "kept", 1);
  setenv("LONGSPAN_TEST_CHANGED", "before", 1);
  SignalGuard guard;
  std::string answer;
  ChildProcess child("/bin/sh",
                     {"-c", "echo $LONGSPAN_TEST_KEPT $LONGSPAN_TEST_CHANGED $LONGSPAN_TEST_NEW >&3"},
                     {{"LONGSPAN_TEST_CHANGED", "after"}, {"LONGSPAN_TEST_NEW", "new"}});
  child.listen(60, guard, [&](const std::string& line) {
    answer = line;
    return true;
  });
  EXPECT_EQ(answer, "kept after new");
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

TEST(ChildProcess, IsKilledAtTheLimitWithItsChildren) {
  const Outcome outcome = shell("sleep 1000 & echo $! >&3; wait", 0.3);
  EXPECT_EQ(outcome.end.how, ChildEnd::How::kTimedOut);
  ASSERT_EQ(outcome.lines.size(), 1u);
  // It dies at once, and init reaps it shortly afterwards.
  const pid_t grandchild = std::stoi(outcome.lines[0]);
  for (int i = 0; i < 6000 && kill(grandchild, 0) == 0; ++i) usleep(10000);
  EXPECT_NE(kill(grandchild, 0), 0);
}

TEST(ChildProcess, DoesNotWaitForProcessesLeftBehind) {
  const Outcome outcome = shell("sleep 1000 & exit 0", 30);
  EXPECT_EQ(outcome.end.how, ChildEnd::How::kExited);
}

TEST(ChildProcess, AnInterruptEndsIt) {
  SignalGuard guard;
  EXPECT_FALSE(guard.interrupted());
  kill(getpid(), SIGINT);  // the guard catches it
  ChildProcess child("/bin/sh", {"-c", "sleep 1000"});
  const ChildEnd end = child.listen(60, guard, [](const std::string&) { return false; });
  EXPECT_EQ(end.how, ChildEnd::How::kInterrupted);
  EXPECT_TRUE(guard.interrupted());
}

}  // namespace
}  // namespace longspan::bench
