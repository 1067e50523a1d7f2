#include "cli/start.h"

#include <csignal>
#include <cstdio>
#include <initializer_list>

#include <fcntl.h>
#include <malloc.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

namespace longspan::cli {
namespace {

constexpr rlim_t kMiB = 1 << 20;
constexpr rlim_t kNeeded = 256 * kMiB;  // of the libraries, with OpenBLAS's first buffer

// The CPUs of this process, if OpenBLAS was shown one of them only.
cpu_set_t g_cpus;
bool g_shown_one = false;

// OpenBLAS waits for ever for a buffer that it does not get. Where address space is limited, this sees to it
// that there is enough for the first, and shows OpenBLAS one CPU: for each further one it would start a
// thread that reserves a buffer of its own whenever it comes to run. It calls nothing but the system, since
// it runs before the libraries are initialised.
void limit_openblas(int, char**, char**) {
  bool limited = false;
  for (const auto resource : {RLIMIT_AS, RLIMIT_DATA}) {
    rlimit limit{};
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) continue;
    limited = true;
    if (limit.rlim_cur >= kNeeded) continue;
    char message[256];
    const int length = std::snprintf(
        message, sizeof message,
        "longspan: out of memory: the program needs %llu MiB of address space to start; "
        "raise its limit (%s)\n",
        static_cast<unsigned long long>(kNeeded / kMiB), resource == RLIMIT_AS ? "ulimit -v" : "ulimit -d");
    std::signal(SIGPIPE, SIG_IGN);
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, message, static_cast<size_t>(length));
    _exit(1);
  }
  if (!limited || sched_getaffinity(0, sizeof g_cpus, &g_cpus) != 0) return;
  int first = 0;
  while (first < CPU_SETSIZE - 1 && !CPU_ISSET(first, &g_cpus)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  g_shown_one = sched_setaffinity(0, sizeof one, &one) == 0;
}

[[gnu::section(".preinit_array"), gnu::used]] void (*const kRunFirst)(int, char**, char**) = limit_openblas;

}  // namespace

void prepare_process() {
  if (g_shown_one) {
    sched_setaffinity(0, sizeof g_cpus, &g_cpus);
    mallopt(M_ARENA_MAX, 1);  // a thread's own arena takes 64 MiB of the limited address space
  }
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    // Open the lowest free number, which is this one. Writing to a closed stdout stays an error.
    [[maybe_unused]] const int opened = open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);
  }
  std::signal(SIGPIPE, SIG_IGN);  // the reader of a pipe is gone: write() says so
  std::signal(SIGXFSZ, SIG_IGN);  // the limit of file sizes (ulimit -f): write() says so
}

}  // namespace longspan::cli
