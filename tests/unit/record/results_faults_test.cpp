// Each system call of writing, resuming and appending fails in turn, in each way. No line may be lost,
// doubled or altered, and each failure has a message.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "record/checksum.h"
#include "record/results_file.h"

namespace longspan::record {
namespace {

namespace fs = std::filesystem;

// The way in which the call of that number fails.
struct Fault {
  int at = 0;
  int error = 0;      // 0: reads and writes do half of what was asked, other calls succeed
  bool dead = false;  // and so does every later call
};

Fault fault;
int calls_made = 0;

bool fails() {
  const int number = ++calls_made;
  const bool hit = fault.error != 0 && (fault.dead ? number >= fault.at : number == fault.at);
  if (hit) errno = fault.error;
  return hit;
}

// Whether the call that fails() counted last does half of its work.
bool is_short() {
  return fault.error == 0 && calls_made == fault.at;
}

ssize_t faulty_pread(int fd, void* bytes, size_t count, off_t offset) {
  return fails() ? -1 : pread(fd, bytes, is_short() ? (count + 1) / 2 : count, offset);
}
ssize_t faulty_write(int fd, const void* bytes, size_t count) {
  return fails() ? -1 : write(fd, bytes, is_short() ? (count + 1) / 2 : count);
}
// A full disk takes half a line, and then nothing: it may not even be possible to remove that half.
ssize_t write_half_then_fail(int fd, const void* bytes, size_t count) {
  const bool first = ++calls_made == fault.at;
  if (calls_made < fault.at) return write(fd, bytes, count);
  errno = fault.error;
  return first ? write(fd, bytes, (count + 1) / 2) : -1;
}

// Nothing here can tell whether the disk was waited for, so it is not.
FileCalls faulty_calls() {
  FileCalls calls = system_calls();
  calls.open = [](const char* path, int flags, mode_t mode) {
    return fails() ? -1 : system_calls().open(path, flags, mode);
  };
  calls.fstat = [](int fd, struct stat* status) { return fails() ? -1 : system_calls().fstat(fd, status); };
  calls.flock = [](int fd, int operation) { return fails() ? -1 : system_calls().flock(fd, operation); };
  calls.pread = faulty_pread;
  calls.write = faulty_write;
  calls.ftruncate = [](int fd, off_t length) { return fails() ? -1 : ftruncate(fd, length); };
  calls.fdatasync = [](int) { return fails() ? -1 : 0; };
  calls.fsync = [](int) { return fails() ? -1 : 0; };
  return calls;
}

FileCalls full_disk_calls() {
  FileCalls calls = faulty_calls();
  calls.open = system_calls().open;
  calls.fstat = system_calls().fstat;
  calls.flock = system_calls().flock;
  calls.pread = system_calls().pread;
  calls.write = write_half_then_fail;
  calls.ftruncate = [](int fd, off_t length) {
    return calls_made >= fault.at ? (errno = fault.error, -1) : ftruncate(fd, length);
  };
  calls.fdatasync = calls.fsync = [](int) { return 0; };
  return calls;
}

Json line_of(int number) {
  Json line = {{"type", number == 0 ? "run" : "case"}, {"schema", kSchema}, {"run", "00000000000000aa"}};
  if (number > 0) line["id"] = fmt::format("{:016x}", number);
  line["text"] = std::string(static_cast<size_t>(number) * 40, 'x');
  return line;
}

constexpr int kLines = 6;

class ResultsFaultsTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("longspan_faults_test_" + std::to_string(getpid()));
    fs::remove_all(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  fs::path folder() const { return root_ / "new" / "out"; }
  std::vector<std::string> lines() const {
    std::vector<std::string> lines;
    std::ifstream file(folder() / "results.jsonl", std::ios::binary);
    for (std::string line; std::getline(file, line);) lines.push_back(line + (file.eof() ? "" : "\n"));
    return lines;
  }

  // Runs an action; a failure must say something about a file.
  template <class Action>
  bool succeeds(Action&& action) {
    try {
      action();
      return true;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(root_.parent_path().string()));
      EXPECT_THAT(error.what(), testing::Not(testing::HasSubstr("Success")));
      ++failures_;
      return false;
    }
  }

  // Appends the lines up to `end` that the file lacks. Another device of a run goes on after one has failed.
  void write_until(int end, ResultsFile::Mode mode, const FileCalls& calls) {
    succeeds([&] {
      ResultsFile file(folder().string(), mode, calls);
      std::set<std::string> there;
      for (const ResultsLine& line : file.earlier()) there.insert(line.id);
      for (int i = 0; i < end; ++i) {
        if (there.contains(i == 0 ? "" : fmt::format("{:016x}", i))) continue;
        if (succeeds([&] { file.append(line_of(i)); })) written_.insert(i);
      }
    });
  }

  // A run that is killed in the middle of a line, and its continuation.
  void cycle(const FileCalls& calls) {
    write_until(4, ResultsFile::Mode::kFresh, calls);
    if (fs::exists(folder() / "results.jsonl")) {
      const std::string next = text_with_checksum(line_of(5));
      std::ofstream file(folder() / "results.jsonl", std::ios::binary | std::ios::app);
      if (lines().empty() || lines().back().ends_with("\n")) file << next.substr(0, next.size() / 2);
    }
    write_until(kLines, ResultsFile::Mode::kResume, calls);
  }

  // Whatever a call returned, what was reported as written is there, once, as it was; and the run can be
  // completed.
  void try_fault(const Fault& tried, const FileCalls& calls) {
    SCOPED_TRACE(fmt::format("call {}: {}{}", tried.at,
                             tried.error == 0 ? "short" : std::strerror(tried.error),
                             tried.dead ? ", and all later ones" : ""));
    fs::remove_all(root_);
    fault = tried;
    calls_made = failures_ = 0;
    written_.clear();
    cycle(calls);
    const std::vector<std::string> left = lines();
    for (const int i : written_)
      EXPECT_EQ(std::count(left.begin(), left.end(), text_with_checksum(line_of(i)) + "\n"), 1)
          << "line " << i;
    const bool must_fail = tried.error != 0 && tried.error != EINTR;
    EXPECT_EQ(failures_ > 0, must_fail);
    write_until(kLines, ResultsFile::Mode::kResume, system_calls());
    std::multiset<std::string> expected;
    for (int i = 0; i < kLines; ++i) expected.insert(text_with_checksum(line_of(i)) + "\n");
    const std::vector<std::string> whole = lines();
    EXPECT_EQ(std::multiset<std::string>(whole.begin(), whole.end()), expected);
    ++tried_;
  }

  fs::path root_;
  std::set<int> written_;
  int failures_ = 0, tried_ = 0;
};

TEST_F(ResultsFaultsTest, NoLineIsLostDoubledOrAltered) {
  fault = {};
  calls_made = 0;
  cycle(faulty_calls());
  ASSERT_EQ(failures_, 0);
  const int calls = calls_made;
  for (int at = 1; at <= calls; ++at) {
    for (const int error : {EIO, ENOSPC, EDQUOT}) {
      for (const bool dead : {false, true}) try_fault({at, error, dead}, faulty_calls());
    }
    try_fault({at, 0, false}, faulty_calls());
    try_fault({at, EINTR, false}, faulty_calls());
  }
  EXPECT_GE(tried_, 200);
}

TEST_F(ResultsFaultsTest, ALineThatFillsTheDiskEndsTheFile) {
  for (int at = 1; at <= kLines; ++at) {
    for (const int error : {EIO, ENOSPC}) try_fault({at, error, true}, full_disk_calls());
  }
}

}  // namespace
}  // namespace longspan::record
