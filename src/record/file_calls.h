// The system calls by which results are read and written, so that tests can make each of them fail.
#pragma once

#include <cstddef>

#include <sys/types.h>

namespace longspan::record {

// Each function means what the system's function of that name means: -1 and errno on failure.
struct FileCalls {
  ssize_t (*pread)(int fd, void* bytes, size_t count, off_t offset);
  ssize_t (*write)(int fd, const void* bytes, size_t count);
  int (*ftruncate)(int fd, off_t length);
  int (*fdatasync)(int fd);
};

const FileCalls& system_calls();

}  // namespace longspan::record
