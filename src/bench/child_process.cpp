#include "bench/child_process.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"

namespace longspan::bench {
namespace {

constexpr int kEndSignals[] = {SIGINT, SIGTERM, SIGHUP};
constexpr size_t kKeptOutput = 4096;

// What the handler writes to: a pipe works whichever thread the signal reaches.
volatile int signal_pipe = -1;

extern "C" void tell_of_signal(int) {
  const int saved = errno;
  const char byte = 1;
  [[maybe_unused]] const ssize_t written = write(signal_pipe, &byte, 1);
  errno = saved;
}

// Both ends are closed on exec; a child gets its end through dup2.
struct Pipe {
  int read = -1, write = -1;

  Pipe() {
    int ends[2];
    LONGSPAN_CHECK(pipe2(ends, O_CLOEXEC) == 0, "pipe: {}", std::strerror(errno));
    // Out of the way of the descriptors that the child gets.
    static_assert(kFirstInherited + kMostInherited <= 10);
    read = fcntl(ends[0], F_DUPFD_CLOEXEC, 10);
    write = fcntl(ends[1], F_DUPFD_CLOEXEC, 10);
    ::close(ends[0]);
    ::close(ends[1]);
    LONGSPAN_CHECK(read >= 0 && write >= 0, "pipe: {}", std::strerror(errno));
  }
  void do_not_wait_on_read() { fcntl(read, F_SETFL, O_NONBLOCK); }
  ~Pipe() {
    close(read);
    close(write);
  }
  static void close(int& fd) {
    if (fd >= 0) ::close(fd);
    fd = -1;
  }
};

class Child {
 public:
  Child(const std::string& program, const std::vector<std::string>& arguments,
        const std::vector<int>& inherited, const Variables& variables) {
    LONGSPAN_CHECK(inherited.size() <= kMostInherited, "{} descriptors for a child", inherited.size());
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input_.read, 0);
    posix_spawn_file_actions_adddup2(&actions, output_.write, 1);
    posix_spawn_file_actions_adddup2(&actions, output_.write, 2);
    posix_spawn_file_actions_adddup2(&actions, result_.write, kResultDescriptor);
    for (size_t i = 0; i < inherited.size(); ++i) {
      LONGSPAN_CHECK(inherited[i] >= 10, "descriptor {} is among those that the child gets", inherited[i]);
      posix_spawn_file_actions_adddup2(&actions, inherited[i], kFirstInherited + static_cast<int>(i));
    }

    // A group of its own: Ctrl-C on the terminal reaches the parent alone, and one kill reaches all that the
    // child started.
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attributes, 0);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none);
    sigset_t defaults;
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawnattr_setsigdefault(&attributes, &defaults);

    std::vector<std::string> words{"longspan"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    SpawnEnvironment environment(variables);
    const int error =
        posix_spawn(&pid_, program.c_str(), &actions, &attributes, pointers.data(), environment.data());
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    LONGSPAN_CHECK(error == 0, "{} cannot be started: {}", program, std::strerror(error));
    Pipe::close(input_.read);
    Pipe::close(output_.write);
    Pipe::close(result_.write);
    output_.do_not_wait_on_read();
    result_.do_not_wait_on_read();
  }

  ~Child() { kill_all(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // A case fits into a pipe's buffer, so this does not wait for the child to read.
  void send(const std::string& input) {
    size_t sent = 0;
    while (sent < input.size()) {
      const ssize_t n = write(input_.write, input.data() + sent, input.size() - sent);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;  // it died already; how is told by its end
      sent += static_cast<size_t>(n);
    }
    Pipe::close(input_.write);
  }

  int result_fd() const { return result_.read; }
  int output_fd() const { return output_.read; }

  // Has it ended? It stays a zombie until kill_all, so that the number of its group is given to nobody else.
  bool ended() const {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == pid_;
  }

  // Ends the child and all that it started, and says how the child ended.
  int kill_all() {
    if (!reaped_) {
      ::kill(-pid_, SIGKILL);
      while (waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
      }
      reaped_ = true;
    }
    return status_;
  }

 private:
  Pipe input_, output_, result_;
  pid_t pid_ = -1;
  int status_ = 0;
  bool reaped_ = false;
};

// Reads what is there; false when the stream has ended.
bool read_available(int fd, std::string& text) {
  char block[1 << 16];
  for (;;) {
    const ssize_t got = read(fd, block, sizeof block);
    if (got > 0) text.append(block, static_cast<size_t>(got));
    if (got == 0) return false;
    if (got < 0 && errno != EINTR) return errno == EAGAIN;
  }
}

void keep_last(std::string& text, size_t bytes) {
  if (text.size() > bytes) text.erase(0, text.size() - bytes);
}

}  // namespace

SignalGuard::SignalGuard() {
  LONGSPAN_CHECK(signal_pipe < 0, "two guards of the same signals");
  int ends[2];
  LONGSPAN_CHECK(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0, "pipe: {}", std::strerror(errno));
  fd_ = ends[0];
  signal_pipe = ends[1];
  for (int signal : kEndSignals) {
    struct sigaction now {};
    sigaction(signal, nullptr, &now);
    if (now.sa_handler == SIG_IGN) continue;  // under nohup a hang-up is to be survived
    struct sigaction action {};
    action.sa_handler = tell_of_signal;
    action.sa_flags = SA_RESTART;
    sigaction(signal, &action, nullptr);
  }
  std::signal(SIGPIPE, SIG_IGN);  // a child that died before it read its case is told by its end
}

SignalGuard::~SignalGuard() {
  for (int signal : kEndSignals) {
    struct sigaction now {};
    sigaction(signal, nullptr, &now);
    if (now.sa_handler == tell_of_signal) std::signal(signal, SIG_DFL);
  }
  std::signal(SIGPIPE, SIG_DFL);
  close(fd_);
  close(signal_pipe);
  signal_pipe = -1;
}

bool SignalGuard::interrupted() {
  char byte;
  while (read(fd_, &byte, 1) == 1) interrupted_ = true;
  return interrupted_;
}

ChildEnd run_child(const std::string& program, const std::vector<std::string>& arguments,
                   const std::string& input, double limit_s, SignalGuard& guard,
                   const std::function<void(const std::string&)>& on_line, const std::vector<int>& inherited,
                   const Variables& variables) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(std::min(limit_s, 1e9)));
  Child child(program, arguments, inherited, variables);
  child.send(input);

  ChildEnd end;
  std::string lines;
  bool result_open = true, output_open = true, stopped = false;
  const auto hand_out_lines = [&] {
    for (size_t newline; (newline = lines.find('\n')) != std::string::npos; lines.erase(0, newline + 1)) {
      on_line(lines.substr(0, newline));
    }
  };
  // Ends when the child has: a process that it left behind may hold the pipes open for ever.
  while (!child.ended()) {
    if (guard.interrupted() || Clock::now() >= deadline) {
      end.how = guard.interrupted() ? ChildEnd::How::kInterrupted : ChildEnd::How::kTimedOut;
      stopped = true;
      break;
    }
    pollfd watched[] = {{result_open ? child.result_fd() : -1, POLLIN, 0},
                        {output_open ? child.output_fd() : -1, POLLIN, 0},
                        {guard.descriptor(), POLLIN, 0}};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    // With both pipes closed nothing but the clock would tell of the end.
    const int64_t longest = result_open || output_open ? 200 : 5;
    poll(watched, 3, static_cast<int>(std::clamp<int64_t>(left, 1, longest)));
    if (watched[0].revents != 0) result_open = read_available(child.result_fd(), lines);
    if (watched[1].revents != 0) output_open = read_available(child.output_fd(), end.error_output);
    keep_last(end.error_output, kKeptOutput);
    hand_out_lines();
  }
  const int status = child.kill_all();
  // What it said last is still in the pipes.
  read_available(child.result_fd(), lines);
  read_available(child.output_fd(), end.error_output);
  keep_last(end.error_output, kKeptOutput);
  hand_out_lines();
  if (stopped) return end;
  end.how = WIFSIGNALED(status) ? ChildEnd::How::kSignalled : ChildEnd::How::kExited;
  end.status = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
  return end;
}

void become_child() {
  const pid_t parent = getppid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it died in between
  std::ofstream("/proc/self/oom_score_adj") << "1000";
}

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal) : fmt::format("SIG{}", name);
}

}  // namespace longspan::bench
