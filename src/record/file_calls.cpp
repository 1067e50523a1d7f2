#include "record/file_calls.h"

#include <cstdio>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace longspan::record {

const FileCalls& system_calls() {
  static constexpr FileCalls calls{
      [](const char* path, int flags, mode_t mode) { return ::open(path, flags, mode); },
      [](int fd, struct stat* status) { return ::fstat(fd, status); },
      ::flock,
      ::pread,
      ::write,
      ::ftruncate,
      ::fdatasync,
      ::fsync,
      ::rename};
  return calls;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

int open_file(const FileCalls& calls, const std::string& path, int flags, mode_t mode) {
  return uninterrupted([&] { return calls.open(path.c_str(), flags | O_CLOEXEC, mode); });
}

bool write_whole(const FileCalls& calls, int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = uninterrupted([&] { return calls.write(fd, text.data(), text.size()); });
    if (written == 0) errno = ENOSPC;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

bool sync_folder(const FileCalls& calls, const std::string& folder) {
  const Descriptor opened(open_file(calls, folder, O_RDONLY | O_DIRECTORY));
  if (!opened.is_open()) return false;
  const int synced = uninterrupted([&] { return calls.fsync(opened.get()); });
  return synced == 0 || errno == EINVAL;  // EINVAL: the file system syncs no folders
}

}  // namespace longspan::record
