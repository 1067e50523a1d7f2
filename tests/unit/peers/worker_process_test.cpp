// Communication with a peer's worker, and the messages if it dies, writes nonsense or cannot be started.
#include "peers/worker_process.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include "base/error.h"

namespace longspan::peers {
namespace {

using testing::HasSubstr;

// A folder whose worker.py is the given shell script, and an "interpreter" that runs it by sh.
class WorkerProcessTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / fmt::format("longspan_worker_{}", ::getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_with(const std::string& script) {
    std::ofstream(folder_ / "worker.py") << script;
    return folder_.string();
  }

  // It takes -I, as Python does.
  std::string interpreter() {
    const std::filesystem::path path = folder_ / "interpreter";
    std::ofstream(path) << "#!/bin/sh\n[ \"$1\" = -I ] || exit 9\nshift\nexec sh \"$@\"\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path.string();
  }

  std::string failure_of(const std::string& script) {
    try {
      WorkerProcess worker(interpreter(), folder_with(script), "some-peer");
      return "answered " + worker.ask({{"op", "hello"}}).dump();
    } catch (const Error& error) {
      return error.what();
    }
  }

  std::filesystem::path folder_;
};

TEST_F(WorkerProcessTest, AnswersLineByLine) {
  WorkerProcess worker(interpreter(), folder_with(R"(echo noise
while read -r line; do echo '{"ok": true, "adapter": "'"$1"'", "got": '"$line"'}' >&3; done)"),
                       "some-peer");
  for (int i = 0; i < 3; ++i) {
    int meanwhile = 0;
    const Json answer = worker.ask({{"number", i}}, [&] { ++meanwhile; });
    EXPECT_EQ(answer.at("adapter"), "some-peer");
    EXPECT_EQ(answer.at("got").at("number"), i);
    EXPECT_EQ(meanwhile, 1);
  }
  const std::string large(1 << 20, 'x');  // more than a pipe holds
  EXPECT_EQ(worker.ask({{"large", large}}).at("got").at("large"), large);
}

TEST_F(WorkerProcessTest, SaysHowAWorkerEnded) {
  EXPECT_THAT(failure_of("kill -9 $$"), HasSubstr("some-peer was killed by signal 9 (Killed)"));
  EXPECT_THAT(failure_of("read line; kill -11 $$"), HasSubstr("was killed by signal 11"));
  EXPECT_THAT(failure_of("exit 3"), HasSubstr("exited with status 3"));
}

// The runner starts a worker, and the processes of cases use it.
TEST_F(WorkerProcessTest, CanBeUsedFromAnotherProcess) {
  WorkerProcess started(interpreter(),
                        folder_with(R"(while read -r line; do echo '{"ok": true}' >&3; done; exit 4)"),
                        "some-peer", WorkerProcess::Group::kOwn);
  for (int i = 0; i < 2; ++i) {
    const std::vector<int> fds = started.descriptors();
    WorkerProcess elsewhere("some-peer", ::dup(fds[0]), ::dup(fds[1]));
    EXPECT_EQ(elsewhere.ask({{"op", "hello"}}), Json({{"ok", true}}));
    EXPECT_EQ(elsewhere.how_it_ended(), "");  // only the parent process knows
  }
  EXPECT_EQ(started.how_it_ended(), "");
}

TEST_F(WorkerProcessTest, KnowsHowAWorkerEndedThatItDoesNotSpeakTo) {
  WorkerProcess started(interpreter(), folder_with("exit 4"), "some-peer");
  for (int i = 0; i < 6000 && started.how_it_ended().empty(); ++i) ::usleep(10000);
  EXPECT_EQ(started.how_it_ended(), "exited with status 4");
  const std::vector<int> fds = started.descriptors();
  WorkerProcess elsewhere("some-peer", ::dup(fds[0]), ::dup(fds[1]));
  try {
    elsewhere.ask({{"op", "hello"}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "the worker of some-peer is gone");
  }
}

TEST_F(WorkerProcessTest, TakesNothingForAnAnswerThatIsNone) {
  EXPECT_THAT(failure_of("read line; echo hello >&3"), HasSubstr("answered 'hello'"));
  EXPECT_THAT(failure_of("read line; echo '{\"fine\": true}' >&3"), HasSubstr("answered '{\"fine\": true}'"));
}

TEST_F(WorkerProcessTest, SaysThatAnInterpreterIsMissing) {
  try {
    WorkerProcess worker("/no/such/python", folder_with(""), "some-peer");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("/no/such/python cannot be started: No such file or directory"));
  }
}

TEST_F(WorkerProcessTest, FindsInterpreters) {
  setenv("LONGSPAN_PYTHON", "/a/python:b", 1);
  EXPECT_THAT(interpreters(), testing::ElementsAre("/a/python", "b"));
  unsetenv("LONGSPAN_PYTHON");
  EXPECT_THAT(interpreters(), testing::ElementsAre("python3"));
}

}  // namespace
}  // namespace longspan::peers
