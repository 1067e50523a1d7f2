// An unnamed file, mapped here, that another process opens through /proc. It carries data that is too large
// for a line of the protocol.
#pragma once

#include <cstddef>
#include <string>

namespace longspan::peers {

class SharedFile {
 public:
  explicit SharedFile(size_t bytes);
  ~SharedFile();
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;

  void* data() const { return data_; }
  std::string path() const;  // valid as long as this object lives

 private:
  int fd_ = -1;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace longspan::peers
