// Child processes by posix_spawn, their pipes, and descriptors passed over Unix sockets.
#include "bench/run/child_process.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"

namespace longspan::bench {
namespace {

constexpr int kEndSignals[] = {SIGINT, SIGTERM, SIGHUP};
constexpr size_t kKeptOutput = 4096;

// The handler writes to a pipe, which works on any thread that receives the signal.
volatile int signal_pipe = -1;

extern "C" void on_signal(int) {
  const int saved = errno;
  const char byte = 1;
  [[maybe_unused]] const ssize_t written = write(signal_pipe, &byte, 1);
  errno = saved;
}

// Both ends are closed on exec; a child gets its end through dup2.
struct Ends {
  int parent, child;

  Ends(int parent, int child) : parent(parent), child(child) {}
  Ends(Ends&& other) noexcept : parent(other.take_parent()), child(std::exchange(other.child, -1)) {}
  ~Ends() {
    if (parent >= 0) ::close(parent);
    if (child >= 0) ::close(child);
  }
  int take_parent() { return std::exchange(parent, -1); }
};

// Moves a descriptor above the numbers that the child uses.
int moved_up(int fd) {
  const int moved = fcntl(fd, F_DUPFD_CLOEXEC, 10);
  ::close(fd);
  LONGSPAN_CHECK(moved >= 0, "fcntl: {}", std::strerror(errno));
  return moved;
}

// A pipe from the child, non-blocking on this side.
Ends pipe_from_child() {
  int ends[2];
  LONGSPAN_CHECK(pipe2(ends, O_CLOEXEC) == 0, "pipe: {}", std::strerror(errno));
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return {moved_up(ends[0]), moved_up(ends[1])};
}

Ends socket_to_child() {
  int ends[2];
  LONGSPAN_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "socketpair: {}",
                 std::strerror(errno));
  return {moved_up(ends[0]), moved_up(ends[1])};
}

// Space for the descriptors that accompany a message.
struct Passed {
  static constexpr size_t kMost = 4;
  alignas(cmsghdr) char bytes[CMSG_SPACE(kMost * sizeof(int))] = {};
};

// Reads the available bytes. Returns false at the end of the stream.
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
  LONGSPAN_CHECK(signal_pipe < 0, "there is already a guard for these signals");
  int ends[2];
  LONGSPAN_CHECK(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0, "pipe: {}", std::strerror(errno));
  fd_ = ends[0];
  signal_pipe = ends[1];
  for (int signal : kEndSignals) {
    struct sigaction now {};
    sigaction(signal, nullptr, &now);
    if (now.sa_handler == SIG_IGN) continue;  // keep ignoring SIGHUP under nohup
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigaction(signal, &action, nullptr);
  }
  pipe_handler_ =
      std::signal(SIGPIPE, SIG_IGN);  // listen() reports a child that died before it read its case
}

SignalGuard::~SignalGuard() {
  for (int signal : kEndSignals) {
    struct sigaction now {};
    sigaction(signal, nullptr, &now);
    if (now.sa_handler == on_signal) std::signal(signal, SIG_DFL);
  }
  std::signal(SIGPIPE, pipe_handler_);
  close(fd_);
  close(signal_pipe);
  signal_pipe = -1;
}

bool SignalGuard::interrupted() {
  char byte;
  while (read(fd_, &byte, 1) == 1) interrupted_ = true;
  return interrupted_;
}

ChildProcess::ChildProcess(const std::string& program, const std::vector<std::string>& arguments,
                           const Variables& variables) {
  Ends input = socket_to_child(), output = pipe_from_child(), result = pipe_from_child();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input.child, 0);
  posix_spawn_file_actions_adddup2(&actions, output.child, 1);
  posix_spawn_file_actions_adddup2(&actions, output.child, 2);
  posix_spawn_file_actions_adddup2(&actions, result.child, kResultDescriptor);

  // A separate process group: Ctrl-C on the terminal reaches only the parent, and one kill reaches all that
  // the child started.
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
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  SpawnEnvironment environment(variables);
  const int error =
      posix_spawn(&pid_, program.c_str(), &actions, &attributes, pointers.data(), environment.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  LONGSPAN_CHECK(error == 0, "{} cannot be started: {}", program, std::strerror(error));
  input_ = input.take_parent();
  output_ = output.take_parent();
  result_ = result.take_parent();
}

ChildProcess::~ChildProcess() {
  kill_all();
  close_input();
  ::close(output_);
  ::close(result_);
}

void ChildProcess::send(const std::string& line, const std::vector<int>& descriptors) {
  pass_line(input_, line, descriptors);
}

void ChildProcess::close_input() {
  if (input_ >= 0) ::close(input_);
  input_ = -1;
}

// The child stays a zombie until kill_all(), so that its process group's number is not reused.
bool ChildProcess::ended() const {
  siginfo_t info{};
  return reaped_ || (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                     info.si_pid == pid_);
}

// Returns the wait status of the child.
int ChildProcess::kill_all() {
  if (!reaped_) {
    ::kill(-pid_, SIGKILL);
    while (waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
    }
    reaped_ = true;
  }
  return status_;
}

ChildEnd ChildProcess::listen(double limit_s, SignalGuard& guard, const OnLine& on_line) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(std::min(limit_s, 1e9)));
  ChildEnd end;
  bool result_open = true, output_open = true;
  // Returns true once a line was the answer.
  const auto deliver_lines = [&] {
    for (size_t newline; (newline = lines_.find('\n')) != std::string::npos;) {
      const std::string line = lines_.substr(0, newline);
      lines_.erase(0, newline + 1);
      if (on_line(line)) return true;
    }
    return false;
  };
  const auto stopped = [&](ChildEnd::How how) {
    end.how = how;
    if (how != ChildEnd::How::kAnswered) kill_all();
    return end;
  };
  // Ends with the child, not with its pipes, which a process left behind may keep open.
  while (!ended()) {
    if (guard.interrupted()) return stopped(ChildEnd::How::kInterrupted);
    if (Clock::now() >= deadline) return stopped(ChildEnd::How::kTimedOut);
    pollfd watched[] = {{result_open ? result_ : -1, POLLIN, 0},
                        {output_open ? output_ : -1, POLLIN, 0},
                        {guard.descriptor(), POLLIN, 0}};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    // With both pipes closed, nothing wakes poll() when the child ends.
    const int64_t longest = result_open || output_open ? 200 : 5;
    poll(watched, 3, static_cast<int>(std::clamp<int64_t>(left, 1, longest)));
    if (watched[0].revents != 0) result_open = read_available(result_, lines_);
    if (watched[1].revents != 0) output_open = read_available(output_, end.error_output);
    keep_last(end.error_output, kKeptOutput);
    if (deliver_lines()) return stopped(ChildEnd::How::kAnswered);
  }
  const int status = kill_all();
  // The pipes may still hold its last output.
  read_available(result_, lines_);
  read_available(output_, end.error_output);
  keep_last(end.error_output, kKeptOutput);
  deliver_lines();
  end.how = WIFSIGNALED(status) ? ChildEnd::How::kSignalled : ChildEnd::How::kExited;
  end.status = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
  return end;
}

// A request fits in the socket's buffer, so this does not block.
void pass_line(int socket, const std::string& line, const std::vector<int>& descriptors) {
  LONGSPAN_CHECK(descriptors.size() <= Passed::kMost, "{} descriptors are too many for one message",
                 descriptors.size());
  const std::string text = line + "\n";
  Passed passed;
  for (size_t sent = 0; sent < text.size();) {
    iovec part{const_cast<char*>(text.data()) + sent, text.size() - sent};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (sent == 0 && !descriptors.empty()) {
      message.msg_control = passed.bytes;
      message.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
      cmsghdr* const header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
      std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size() * sizeof(int));
    }
    const ssize_t n = sendmsg(socket, &message, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // the child has died; listen() reports how
    sent += static_cast<size_t>(n);
  }
}

std::optional<Requests::Request> Requests::next() {
  for (;;) {
    if (const size_t newline = received_.find('\n'); newline != std::string::npos) {
      Request request{received_.substr(0, newline), std::move(descriptors_)};
      received_.erase(0, newline + 1);
      descriptors_.clear();
      return request;
    }
    char block[1 << 16];
    Passed passed;
    iovec part{block, sizeof block};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = passed.bytes;
    message.msg_controllen = sizeof passed.bytes;
    const ssize_t got = recvmsg(socket_, &message, MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return std::nullopt;
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      const size_t before = descriptors_.size();
      descriptors_.resize(before + (header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
      std::memcpy(&descriptors_[before], CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0));
    }
    received_.append(block, static_cast<size_t>(got));
  }
}

void become_child() {
  const pid_t parent = getppid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // the parent has already died
  std::ofstream("/proc/self/oom_score_adj") << "1000";
}

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal) : fmt::format("SIG{}", name);
}

}  // namespace longspan::bench
