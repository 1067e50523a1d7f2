#include "cli/start.h"

#include <algorithm>
#include <csignal>
#include <cstdio>

#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

namespace longspan::cli {
namespace {

constexpr rlim_t kMiB = 1 << 20;

// While it is loaded, OpenBLAS reserves a buffer and the stacks of its threads, and waits for ever if it gets
// none. So this runs before the libraries are initialised, and calls nothing but the system.
void check_address_space(int, char**, char**) {
  cpu_set_t allowed;
  const bool known = sched_getaffinity(0, sizeof allowed, &allowed) == 0;
  const long cpus = std::clamp(known ? long{CPU_COUNT(&allowed)} : sysconf(_SC_NPROCESSORS_CONF), 1L, 64L);
  rlimit stack{};
  getrlimit(RLIMIT_STACK, &stack);
  const rlim_t per_thread = stack.rlim_cur == RLIM_INFINITY ? 2 * kMiB : stack.rlim_cur;
  const rlim_t needed = 256 * kMiB + static_cast<rlim_t>(cpus) * per_thread;
  for (const auto resource : {RLIMIT_AS, RLIMIT_DATA}) {
    rlimit limit{};
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= needed)
      continue;
    char message[256];
    const int length = std::snprintf(
        message, sizeof message,
        "longspan: out of memory: the program needs %llu MiB of address space to start; "
        "raise its limit (%s)\n",
        static_cast<unsigned long long>(needed / kMiB), resource == RLIMIT_AS ? "ulimit -v" : "ulimit -d");
    std::signal(SIGPIPE, SIG_IGN);
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, message, static_cast<size_t>(length));
    _exit(1);
  }
}

[[gnu::section(".preinit_array"), gnu::used]] void (*const kCheckFirst)(int, char**,
                                                                        char**) = check_address_space;

}  // namespace

void prepare_process() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    // Open the lowest free number, which is this one. Writing to a closed stdout stays an error.
    [[maybe_unused]] const int opened = open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);
  }
  std::signal(SIGPIPE, SIG_IGN);  // the reader of a pipe is gone: write() says so
  std::signal(SIGXFSZ, SIG_IGN);  // the limit of file sizes (ulimit -f): write() says so
}

}  // namespace longspan::cli
