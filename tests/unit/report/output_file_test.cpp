#include "report/output_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"

namespace longspan::report {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr OutputFile::Kind kPage{"a page", "<page>"};

class OutputFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("longspan_output_test_" + std::to_string(getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  void make(const std::string& name, const std::string& text) const { std::ofstream(at(name)) << text; }
  std::string content(const std::string& name) const {
    std::ifstream file(at(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  // "" if the page was written.
  std::string write(const std::string& name, const std::vector<fs::path>& inputs = {},
                    const record::FileCalls& calls = record::system_calls()) const {
    try {
      OutputFile("-o", at(name), kPage, inputs, calls).write("<page> new");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      EXPECT_THAT(error.what(), HasSubstr("-o " + at(name) + ": "));
      return error.what();
    }
    return "";
  }

  fs::path folder_;
};

TEST_F(OutputFileTest, WritesANewFileAndReplacesOneOfItsKind) {
  EXPECT_EQ(write("new"), "");
  EXPECT_EQ(content("new"), "<page> new");
  make("old", "<page> that was longer than the new one");
  fs::permissions(at("old"), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(write("old"), "");
  EXPECT_EQ(content("old"), "<page> new");
  EXPECT_EQ(fs::status(at("old")).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  make("empty", "");
  EXPECT_EQ(write("empty"), "");
  EXPECT_EQ(files(), 3u);  // and no temporary file
}

TEST_F(OutputFileTest, LeavesFilesOfAnotherKindAlone) {
  for (const std::string text : {"notes", "<page", " <page>", "{}\n"}) {
    make("file", text);
    EXPECT_THAT(write("file"), HasSubstr("exists, and is not a page"));
    EXPECT_EQ(content("file"), text);
  }
  EXPECT_THAT(write(""), HasSubstr("is a folder"));
  EXPECT_THAT(write("none/file"), HasSubstr("cannot be written: No such file"));
  EXPECT_EQ(files(), 1u);
}

TEST_F(OutputFileTest, LeavesInputsAloneByAnyName) {
  make("input", "<page> input");
  fs::create_symlink(at("input"), at("link"));
  fs::create_hard_link(at("input"), at("twin"));
  for (const char* name : {"input", "link", "twin", "./input"}) {
    EXPECT_THAT(write(name, {at("input")}), HasSubstr("is an input, too")) << name;
  }
  EXPECT_THAT(write("input", {at("link")}), HasSubstr("is an input, too"));
  EXPECT_EQ(content("input"), "<page> input");
}

TEST_F(OutputFileTest, ALinkStaysALink) {
  make("page", "<page> old");
  fs::create_symlink("page", at("link"));
  EXPECT_EQ(write("link"), "");
  EXPECT_TRUE(fs::is_symlink(at("link")));
  EXPECT_EQ(content("page"), "<page> new");
}

TEST_F(OutputFileTest, ADeviceIsWrittenAsItIs) {
  OutputFile("-o", "/dev/null", kPage, {}).write("<page>");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  try {
    OutputFile("-o", "/dev/full", kPage, {}).write("<page>");
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("/dev/full: cannot be written: No space left"));
  }
}

// The file is checked again at the end: it may have been made in the meantime.
TEST_F(OutputFileTest, IsCheckedWhenItIsWritten) {
  const OutputFile file("-o", at("page"), kPage, {});
  make("page", "notes");
  EXPECT_THROW(file.write("<page>"), Error);
  EXPECT_EQ(content("page"), "notes");
}

int fail_with = 0;
template <class... Arguments>
int fails(Arguments...) {
  errno = fail_with;
  return -1;
}
ssize_t writes_some(int fd, const void* bytes, size_t count) {
  return count > 3 ? write(fd, bytes, 3) : fails();
}

TEST_F(OutputFileTest, AFailureKeepsTheOldContent) {
  using record::FileCalls;
  void (*const faults[])(FileCalls&) = {
      [](FileCalls& calls) { calls.open = [](const char*, int, mode_t) { return fails(); }; },
      [](FileCalls& calls) { calls.write = [](int, const void*, size_t) -> ssize_t { return fails(); }; },
      [](FileCalls& calls) { calls.write = writes_some; },
      [](FileCalls& calls) { calls.fsync = [](int) { return fails(); }; },
      [](FileCalls& calls) { calls.rename = [](const char*, const char*) { return fails(); }; }};
  for (const int error : {EIO, ENOSPC, EDQUOT}) {
    fail_with = error;
    for (const auto fault : faults) {
      make("page", "<page> old");
      FileCalls calls = record::system_calls();
      fault(calls);
      EXPECT_THAT(write("page", {}, calls), HasSubstr(std::string("cannot be written: ") + strerror(error)));
      EXPECT_EQ(content("page"), "<page> old");
      EXPECT_EQ(files(), 1u);
    }
  }
}

}  // namespace
}  // namespace longspan::report
