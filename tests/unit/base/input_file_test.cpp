// Files that users name: what is read, and what is refused at once.
#include "base/input_file.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include "longspan/base.h"

namespace longspan {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr InputKind kSmall{"a small file", 100};

class InputFile : public ::testing::Test {
 protected:
  InputFile() {
    std::string made = ::testing::TempDir() + "input-file-XXXXXX";
    folder_ = mkdtemp(made.data());
  }
  ~InputFile() override { std::filesystem::remove_all(folder_); }

  std::string with(const std::string& text) const {
    std::ofstream(path()) << text;
    return path();
  }
  std::string path() const { return folder_ + "/file"; }

  std::string folder_;
};

std::string error_of(const std::string& path) {
  try {
    read_input_file(path, kSmall);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_THAT(error.what(), StartsWith(path));
    return error.what();
  }
  return "no error";
}

TEST_F(InputFile, IsReadWhole) {
  const std::string text("a\0b\n", 4);
  EXPECT_EQ(read_input_file(with(text), kSmall), text);
  EXPECT_EQ(read_input_file(with(""), kSmall), "");
  EXPECT_EQ(read_input_file(with(std::string(100, 'x')), kSmall).size(), 100u);
  std::filesystem::create_symlink(path(), folder_ + "/link");
  EXPECT_EQ(read_input_file(folder_ + "/link", kSmall).size(), 100u);
}

TEST_F(InputFile, WithoutASizeIsReadToItsEnd) {
  EXPECT_THAT(read_input_file("/proc/self/stat", {"a file", 1 << 20}), HasSubstr("("));
  EXPECT_THAT(error_of("/proc/self/status"), HasSubstr("a small file may have at most 100 bytes"));
}

TEST_F(InputFile, TooLargeIsRefusedByItsSize) {
  EXPECT_THAT(error_of(with(std::string(101, 'x'))),
              HasSubstr("has 101 bytes; a small file may have at most 100"));
  std::filesystem::resize_file(path(), uintmax_t{1} << 40);
  EXPECT_THAT(error_of(path()), HasSubstr("has 1099511627776 bytes"));
}

TEST_F(InputFile, ThatIsNoRegularFileIsRefused) {
  EXPECT_THAT(error_of(folder_), HasSubstr("is a folder; a small file must be a regular file"));
  EXPECT_THAT(error_of("/dev/zero"), HasSubstr("is a device"));
  ASSERT_EQ(mkfifo(path().c_str(), 0600), 0);
  EXPECT_THAT(error_of(path()), HasSubstr("is a pipe"));
}

TEST_F(InputFile, ThatCannotBeOpenedSaysWhy) {
  EXPECT_THAT(error_of(folder_ + "/none"), HasSubstr("cannot be opened: No such file or directory"));
  EXPECT_THAT(error_of(folder_ + "/" + std::string(5000, 'x')), HasSubstr("File name too long"));
  EXPECT_THAT(error_of("/proc/self/mem"), HasSubstr("cannot be read: "));
  std::filesystem::create_symlink("loop", folder_ + "/loop");
  EXPECT_THAT(error_of(folder_ + "/loop"), HasSubstr("symbolic links"));
}

}  // namespace
}  // namespace longspan
