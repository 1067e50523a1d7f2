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

// Whether address space is limited. Ends the process if the limit is too low to start.
bool check_address_space() {
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
  return limited;
}

void show_one_cpu() {
  if (sched_getaffinity(0, sizeof g_cpus, &g_cpus) != 0) return;
  int first = 0;
  while (first < CPU_SETSIZE - 1 && !CPU_ISSET(first, &g_cpus)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  g_shown_one = sched_setaffinity(0, sizeof one, &one) == 0;
}

// OpenBLAS waits for ever for memory that it does not get. While it is loaded, it starts a thread for each
// CPU, each of which reserves a buffer whenever it first runs. Shown one CPU, it starts none. This runs
// before the libraries are initialised, and calls nothing but the system.
void prepare_for_openblas(int, char**, char**) {
  if (check_address_space()) show_one_cpu();
}

[[gnu::section(".preinit_array"), gnu::used]] void (*const kRunFirst)(int, char**,
                                                                      char**) = prepare_for_openblas;

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
