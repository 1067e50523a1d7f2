#include "record/results_file.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace longspan::record {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr const char* kRunLine = R"({"type":"run","schema":1,"run":"00000000000000aa"})";
constexpr const char* kCaseLine =
    R"({"type":"case","schema":1,"run":"00000000000000aa","id":"00000000000000bb"})";

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
  EXPECT_EQ(content(), "{\"a\":1,\"b\":\"two\\nlines\"}\n{\"c\":null}\n");
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
  for (size_t cut = 0; cut < next.size(); ++cut) {
    write(whole + next.substr(0, cut));
    {
      ResultsFile file(folder(), ResultsFile::Mode::kResume);
      EXPECT_EQ(file.earlier().size(), 1u);
      file.append({{"type", "case"}});
    }
    EXPECT_EQ(content(), whole + "{\"type\":\"case\"}\n") << cut;
  }
}

TEST_F(ResultsFileTest, ResumeOfAHalfFirstLineStartsAnew) {
  write(std::string(kRunLine));
  ResultsFile file(folder(), ResultsFile::Mode::kResume);
  EXPECT_TRUE(file.earlier().empty());
  EXPECT_EQ(content(), "");
}

TEST_F(ResultsFileTest, ResumeNamesAMalformedLine) {
  write(std::string(kRunLine) + "\nnonsense\n" + kCaseLine + "\n");
  EXPECT_THAT(failure(ResultsFile::Mode::kResume), HasSubstr("results.jsonl:2: not valid JSON"));
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

TEST(ParseResultsLine, LeavesUnknownTypesAlone) {
  EXPECT_EQ(parse_results_line(R"({"schema":1,"type":"comment"})").type, ResultsLine::Type::kOther);
}

}  // namespace
}  // namespace longspan::record
