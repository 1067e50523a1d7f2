#include "record/results_file.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "record/checksum.h"

namespace longspan::record {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr const char* kRunLine = R"({"type":"run","schema":1,"run":"00000000000000aa"})";
constexpr const char* kCaseLine =
    R"({"type":"case","schema":1,"run":"00000000000000aa","id":"00000000000000bb"})";
// What append({{"type", "case"}}) writes.
constexpr const char* kAppended = R"({"type":"case","crc32":"de2136a1"}
)";

class ResultsFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("longspan_results_test_" + std::to_string(getpid()));
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string folder() const { return folder_.string(); }
  void write(const std::string& text) const {
    fs::create_directories(folder_);
    std::ofstream(folder_ / "results.jsonl", std::ios::binary) << text;
  }
  std::string content() const {
    std::ifstream file(folder_ / "results.jsonl", std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  std::string failure(ResultsFile::Mode mode) const {
    try {
      ResultsFile file(folder(), mode);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      return error.what();
    }
    return "no error";
  }

 private:
  fs::path folder_;
};

TEST_F(ResultsFileTest, AppendsWholeLines) {
  {
    ResultsFile file(folder(), ResultsFile::Mode::kFresh);
    file.append({{"a", 1}, {"b", "two\nlines"}});
    file.append({{"c", nullptr}});
  }
  EXPECT_EQ(content(), R"({"a":1,"b":"two\nlines","crc32":"d746c554"}
{"c":null,"crc32":"30885dbc"}
)");
}

TEST_F(ResultsFileTest, RefusesToOverwrite) {
  write(std::string(kRunLine) + "\n");
  EXPECT_THAT(failure(ResultsFile::Mode::kFresh), HasSubstr("complete that run with --resume"));
  EXPECT_EQ(content(), std::string(kRunLine) + "\n");
}

TEST_F(ResultsFileTest, ResumeReadsWhatIsThere) {
  write(std::string(kRunLine) + "\n" + kCaseLine + "\n");
  ResultsFile file(folder(), ResultsFile::Mode::kResume);
  ASSERT_EQ(file.earlier().size(), 2u);
  EXPECT_EQ(file.earlier()[0].type, ResultsLine::Type::kRun);
  EXPECT_EQ(file.earlier()[1].type, ResultsLine::Type::kCase);
  EXPECT_EQ(file.earlier()[1].id, "00000000000000bb");
}

// Wherever the last write was cut, the lines before it are kept and the incomplete line is removed.
TEST_F(ResultsFileTest, ResumeRemovesAHalfLineAtAnyLength) {
  const std::string whole = std::string(kRunLine) + "\n";
  const std::string next = std::string(kCaseLine) + "\n";
  for (size_t cut = 0; cut + 1 < next.size(); ++cut) {
    write(whole + next.substr(0, cut));
    {
      ResultsFile file(folder(), ResultsFile::Mode::kResume);
      EXPECT_EQ(file.earlier().size(), 1u);
      file.append({{"type", "case"}});
    }
    EXPECT_EQ(content(), whole + kAppended) << cut;
  }
}

TEST_F(ResultsFileTest, ResumeOfAHalfFirstLineStartsAnew) {
  const std::string line = kRunLine;
  for (size_t cut = 0; cut < line.size(); ++cut) {
    write(line.substr(0, cut));
    ResultsFile file(folder(), ResultsFile::Mode::kResume);
    EXPECT_TRUE(file.earlier().empty());
    EXPECT_EQ(content(), "") << cut;
  }
}

TEST_F(ResultsFileTest, ResumeKeepsAWholeLineWithoutItsNewline) {
  write(std::string(kRunLine) + "\n" + kCaseLine);
  {
    ResultsFile file(folder(), ResultsFile::Mode::kResume);
    ASSERT_EQ(file.earlier().size(), 2u);
    EXPECT_EQ(file.earlier()[1].id, "00000000000000bb");
    file.append({{"type", "case"}});
  }
  EXPECT_EQ(content(), std::string(kRunLine) + "\n" + kCaseLine + "\n" + kAppended);
}

TEST_F(ResultsFileTest, ResumeLeavesOtherFilesAlone) {
  for (const std::string text : {"my notes", "{\"other\": 1}", "a,b\n1,2\n", "{\"type\":\"run\"}\nhalf"}) {
    write(text);
    EXPECT_NE(failure(ResultsFile::Mode::kResume), "no error") << text;
    EXPECT_EQ(content(), text);
  }
}

// Each call of the file in turn fails, by each of these errors.
int fail_with = 0;
template <class... Arguments>
int fails(Arguments...) {
  errno = fail_with;
  return -1;
}
ssize_t reads_once(int fd, void* bytes, size_t count, off_t offset) {
  return offset == 0 ? pread(fd, bytes, std::min<size_t>(count, 20), 0) : fails();
}
ssize_t writes_half(int fd, const void* bytes, size_t count) {
  return count > 20 ? write(fd, bytes, count / 2) : fails();
}

TEST_F(ResultsFileTest, AFailedReadChangesNothing) {
  const std::string text = std::string(kRunLine) + "\n" + kCaseLine + "\n";
  for (const int error : {EIO, ENOMEM, EBADF}) {
    fail_with = error;
    for (const auto pread : {+[](int, void*, size_t, off_t) -> ssize_t { return fails(); }, &reads_once}) {
      write(text);
      FileCalls calls = system_calls();
      calls.pread = pread;
      try {
        ResultsFile file(folder(), ResultsFile::Mode::kResume, calls);
        ADD_FAILURE() << "no error";
      } catch (const Error& failure) {
        EXPECT_THAT(failure.what(), HasSubstr("cannot be read: "));
      }
      EXPECT_EQ(content(), text);
    }
  }
}

TEST_F(ResultsFileTest, SaysWhichWriteFailed) {
  fail_with = ENOSPC;
  const auto expect_failure = [&](const FileCalls& calls, const char* part) {
    write(std::string(kRunLine) + "\n");
    ResultsFile file(folder(), ResultsFile::Mode::kResume, calls);
    try {
      file.append({{"type", "case"}});
      ADD_FAILURE() << "no error";
    } catch (const Error& failure) {
      EXPECT_EQ(failure.kind(), ErrorKind::kInput);
      EXPECT_THAT(failure.what(), HasSubstr(part));
    }
    EXPECT_THAT(content(), testing::StartsWith(std::string(kRunLine) + "\n"));
  };
  FileCalls calls = system_calls();
  calls.write = [](int, const void*, size_t) -> ssize_t { return fails(); };
  expect_failure(calls, "cannot be written: No space left");
  calls.write = writes_half;
  expect_failure(calls, "cannot be written: No space left");
  EXPECT_EQ(content(), std::string(kRunLine) + "\n");  // half of the line was removed
  calls = system_calls();
  calls.fdatasync = [](int) { return fails(); };
  expect_failure(calls, "cannot be written to disk: No space left");
}

TEST_F(ResultsFileTest, AHalfLineThatCannotBeRemovedIsAnError) {
  fail_with = EIO;
  FileCalls calls = system_calls();
  calls.ftruncate = [](int, off_t) { return fails(); };
  const std::string text = std::string(kRunLine) + "\n{\"type\":";
  write(text);
  EXPECT_THROW(ResultsFile(folder(), ResultsFile::Mode::kResume, calls), Error);
  EXPECT_EQ(content(), text);
}

TEST_F(ResultsFileTest, ResumeNamesAMalformedLine) {
  write(std::string(kRunLine) + "\nnonsense\n" + kCaseLine + "\n");
  EXPECT_THAT(failure(ResultsFile::Mode::kResume), HasSubstr("results.jsonl:2: not valid JSON"));
}

// A whole last line that cannot be read is not a line that was cut short.
TEST_F(ResultsFileTest, ResumeRemovesNoWholeLine) {
  for (const char* line : {R"({"type":"case","schema":2,"run":"00000000000000aa","id":"00000000000000bb"})",
                           R"({"type":"case","schema":1,"crc32":"00000000"})"}) {
    const std::string text = std::string(kRunLine) + "\n" + line;
    write(text);
    EXPECT_THAT(failure(ResultsFile::Mode::kResume), HasSubstr("results.jsonl:2: "));
    EXPECT_EQ(content(), text);
  }
}

TEST_F(ResultsFileTest, IsLockedWhileOpen) {
  {
    ResultsFile file(folder(), ResultsFile::Mode::kFresh);
    EXPECT_THAT(failure(ResultsFile::Mode::kResume), HasSubstr("another run is writing it"));
  }
  EXPECT_EQ(failure(ResultsFile::Mode::kResume), "no error");
}

TEST_F(ResultsFileTest, SaysWhyAFolderCannotBeMade) {
  write("");
  try {
    ResultsFile file(folder() + "/results.jsonl/sub", ResultsFile::Mode::kFresh);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("cannot be made"));
  }
}

TEST(ParseResultsLine, ThrowsOnlyErrorsOfOurs) {
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  const std::string deep_key =
      "{\"schema\":1,\"type\":\"run\",\"run\":" + std::string(40, '[') + std::string(40, ']') + "}";
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string("null"), std::string("{}"),
        std::string(R"({"schema":2,"type":"run","run":"a"})"), std::string(R"({"schema":"1","type":"run"})"),
        std::string(R"({"schema":1})"), std::string(R"({"schema":1,"type":3})"),
        std::string(R"({"schema":1,"type":"run"})"), std::string(R"({"schema":1,"type":"case","run":"a"})"),
        std::string("\xff\xfe"), std::string("{\"a\":\"\xff\"}"), deep, deep_key,
        std::string("{\"schema\":1e999}")}) {
    EXPECT_THROW(parse_results_line(text), Error) << text.substr(0, 80);
  }
}

std::string message_of(const std::string& line) {
  try {
    parse_results_line(line);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ParseResultsLine, ChecksTheChecksum) {
  const std::string line = text_with_checksum(parse_json(kCaseLine));
  EXPECT_EQ(message_of(line), "");
  EXPECT_EQ(message_of(line + " \r"), "");
  for (size_t i = 0; i < line.size(); ++i) {
    std::string changed = line;
    changed[i] = changed[i] == 'x' ? 'y' : 'x';
    // Only the key of the checksum can change unnoticed; the rest of the line is then as it was written.
    const bool of_the_key = line.find("crc32") <= i && i < line.find("crc32") + 5;
    EXPECT_EQ(message_of(changed).empty(), of_the_key) << changed;
  }
}

TEST(ParseResultsLine, TheChecksumIsTheLastKeyAsWritten) {
  std::string line = text_with_checksum(parse_json(kCaseLine));
  const auto with_space = line.insert(line.find("\"crc32\":") + 8, " ");
  EXPECT_THAT(message_of(with_space), HasSubstr("was changed after it was written"));
  EXPECT_THAT(message_of(R"({"crc32":"00000000","type":"run","schema":1,"run":"a"})"), HasSubstr("'crc32'"));
  EXPECT_THAT(message_of(R"({"type":"run","schema":1,"run":"a","crc32":7})"), HasSubstr("'crc32'"));
  EXPECT_THAT(message_of(R"({"type":"comment","schema":1,"crc32":"00000000"})"), HasSubstr("'crc32'"));
}

TEST(ParseResultsLine, LeavesUnknownTypesAlone) {
  EXPECT_EQ(parse_results_line(R"({"schema":1,"type":"comment"})").type, ResultsLine::Type::kOther);
}

}  // namespace
}  // namespace longspan::record
