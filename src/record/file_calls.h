// The system calls by which results and other outputs are written, so that tests can make each of them fail.
#pragma once

#include <cerrno>
#include <cstddef>
#include <string>
#include <string_view>

#include <sys/stat.h>
#include <sys/types.h>

namespace longspan::record {

// Each function means what the system's function of that name means: -1 and errno on failure.
struct FileCalls {
  int (*open)(const char* path, int flags, mode_t mode);
  int (*fstat)(int fd, struct stat* status);
  int (*flock)(int fd, int operation);
  ssize_t (*pread)(int fd, void* bytes, size_t count, off_t offset);
  ssize_t (*write)(int fd, const void* bytes, size_t count);
  int (*ftruncate)(int fd, off_t length);
  int (*fdatasync)(int fd);
  int (*fsync)(int fd);
  int (*rename)(const char* from, const char* to);
};

const FileCalls& system_calls();

// An open file, closed at the end of its scope.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_;
};

// The functions below repeat a call that a signal interrupted. They return -1 or false, and set errno, if
// they fail.

template <class Call>
auto uninterrupted(Call&& call) {
  while (true) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

// Child processes do not inherit the descriptor.
int open_file(const FileCalls& calls, const std::string& path, int flags, mode_t mode = 0);
bool write_whole(const FileCalls& calls, int fd, std::string_view text);
// A new or renamed file is safe only once its entry in the folder is on disk.
bool sync_folder(const FileCalls& calls, const std::string& folder);

}  // namespace longspan::record
