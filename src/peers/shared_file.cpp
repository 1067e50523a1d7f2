#include "peers/shared_file.h"

#include <cerrno>
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"

namespace longspan::peers {

SharedFile::SharedFile(size_t bytes) : bytes_(bytes) {
  fd_ = memfd_create("longspan", MFD_CLOEXEC);
  LONGSPAN_CHECK(fd_ >= 0, "memfd_create: {}", std::strerror(errno));
  const bool sized = ftruncate(fd_, static_cast<off_t>(bytes)) == 0;
  data_ = sized ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0) : MAP_FAILED;
  if (data_ == MAP_FAILED) {
    const int error = errno;
    close(fd_);
    LONGSPAN_CHECK(false, "a shared file of {} bytes: {}", bytes, std::strerror(error));
  }
}

SharedFile::~SharedFile() {
  munmap(data_, bytes_);
  close(fd_);
}

std::string SharedFile::path() const {
  return fmt::format("/proc/{}/fd/{}", getpid(), fd_);
}

}  // namespace longspan::peers
