// A file that a command writes, such as a page or a picture. It never replaces anything but its own kind.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "record/file_calls.h"

namespace longspan::report {

class OutputFile {
 public:
  // `begin`: the bytes that each file of this kind begins with.
  struct Kind {
    std::string_view name, begin;
  };

  // Throws an input error if the file may not be written: it is a folder or one of the inputs, its folder is
  // missing, or it exists and is of another kind. `option` begins the messages.
  OutputFile(std::string_view option, const std::string& path, Kind kind,
             const std::vector<std::filesystem::path>& inputs,
             const record::FileCalls& calls = record::system_calls());

  // The command's own messages must then go elsewhere.
  bool is_stdout() const { return stdout_; }

  // The file has either its old content or the new, whenever the program or the machine stops. A pipe, a
  // device or standard output is written as it is. Throws an input error on failure; a file then keeps its
  // old content.
  void write(std::string_view content) const;

 private:
  void check() const;
  void expect(bool good) const;
  std::string folder() const;
  void replace(std::string_view content) const;

  std::string name_;  // for messages
  std::filesystem::path path_;
  Kind kind_;
  std::vector<std::filesystem::path> inputs_;
  const record::FileCalls& calls_;
  bool stdout_, replaced_;
};

}  // namespace longspan::report
