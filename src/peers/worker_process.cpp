#include "peers/worker_process.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"

namespace longspan::peers {
namespace {

[[noreturn]] void fail(const std::string& message) {
  throw Error(ErrorKind::kPeer, message, __FILE__, __LINE__, "worker");
}

// Both ends are closed on exec and have numbers above the descriptors that a child gets.
struct Pipe {
  int read = -1, write = -1;
  Pipe() {
    int ends[2];
    LONGSPAN_CHECK(pipe2(ends, O_CLOEXEC) == 0, "pipe: {}", std::strerror(errno));
    read = fcntl(ends[0], F_DUPFD_CLOEXEC, 10);
    write = fcntl(ends[1], F_DUPFD_CLOEXEC, 10);
    close(ends[0]);
    close(ends[1]);
  }
};

}  // namespace

std::vector<std::string> interpreters() {
  const char* given = std::getenv("LONGSPAN_PYTHON");
  std::vector<std::string> all;
  std::string rest = given == nullptr ? "" : given;
  while (!rest.empty()) {
    const size_t colon = rest.find(':');
    if (colon != 0) all.push_back(rest.substr(0, colon));
    rest = colon == std::string::npos ? "" : rest.substr(colon + 1);
  }
  if (all.empty()) all.emplace_back("python3");
  return all;
}

WorkerProcess::WorkerProcess(const std::string& python, const std::string& folder, const std::string& adapter,
                             Group group, const Variables& variables)
    : name_(adapter) {
  std::signal(SIGPIPE, SIG_IGN);  // a dead worker is detected by the missing answer
  const Pipe requests, answers;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, requests.read, 0);
  posix_spawn_file_actions_adddup2(&actions, 2, 1);  // keeps output of frameworks out of the answers
  posix_spawn_file_actions_adddup2(&actions, answers.write, 3);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  if (group == Group::kOwn) posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  // -I: neither the working folder nor variables such as PYTHONPATH add modules. worker.py adds its folder.
  const std::string worker = folder + "/worker.py";
  std::vector<std::string> words{python, "-I", worker, adapter};
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  SpawnEnvironment environment(variables);
  const int error =
      posix_spawnp(&pid_, python.c_str(), &actions, &attributes, arguments.data(), environment.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(requests.read);
  close(answers.write);
  requests_ = requests.write;
  answers_ = answers.read;
  if (error != 0) {
    pid_ = -1;
    close(requests_);
    close(answers_);
    fail(fmt::format("{} cannot be started: {}", python, std::strerror(error)));
  }
}

WorkerProcess::WorkerProcess(const std::string& adapter, int requests, int answers)
    : name_(adapter), requests_(requests), answers_(answers) {
  std::signal(SIGPIPE, SIG_IGN);
  for (const int fd : {requests, answers}) fcntl(fd, F_SETFD, FD_CLOEXEC);
}

WorkerProcess::~WorkerProcess() {
  close(requests_);
  close(answers_);
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);  // frees its memory at once; a worker has nothing to save
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Json WorkerProcess::ask(const Json& request, const std::function<void()>& meanwhile) {
  if (broken_) fail(fmt::format("the worker of {} gave a wrong answer before", name_));
  broken_ = true;
  const std::string line = request.dump() + "\n";
  for (size_t sent = 0; sent < line.size();) {
    const ssize_t n = write(requests_, line.data() + sent, line.size() - sent);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;  // it has ended; receive() returns its last answer or reports how it ended
    sent += static_cast<size_t>(n);
  }
  if (meanwhile) meanwhile();
  Json answer = receive();
  broken_ = false;
  return answer;
}

Json WorkerProcess::receive() {
  Json answer = parse_answer(receive_line());
  if (!received_.empty()) fail(fmt::format("the worker of {} answered more than it was asked", name_));
  return answer;
}

std::string WorkerProcess::receive_line() {
  for (size_t seen = 0;;) {
    if (const size_t newline = received_.find('\n', seen); newline != std::string::npos) {
      std::string line = received_.substr(0, newline);
      received_.erase(0, newline + 1);
      return line;
    }
    seen = received_.size();
    if (seen > kMostAnswerBytes)
      fail(fmt::format("the worker of {} answered more than {} bytes without an end", name_,
                       kMostAnswerBytes));
    char block[1 << 16];
    const ssize_t got = read(answers_, block, sizeof block);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) fail_gone();
    received_.append(block, static_cast<size_t>(got));
  }
}

// Reports a worker that has closed its end of the pipe: it is ending, or will never answer again.
void WorkerProcess::fail_gone() {
  const std::string end = how_it_ended();
  fail(end.empty() ? fmt::format("the worker of {} is gone", name_)
                   : fmt::format("the worker of {} {}", name_, end));
}

std::string WorkerProcess::how_it_ended() {
  // A process closes its files shortly before it ends.
  constexpr int kPatience_ms = 1000;
  pollfd answers{answers_, POLLIN, 0};
  const bool ending = pid_ >= 0 && poll(&answers, 1, 0) == 1 && (answers.revents & POLLHUP) != 0;
  for (int waited_ms = 0; pid_ >= 0; ++waited_ms) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) note_end(status);
    if (!ending || waited_ms == kPatience_ms) break;
    if (pid_ >= 0) usleep(1000);
  }
  return end_;
}

void WorkerProcess::note_end(int status) {
  pid_ = -1;
  end_ = WIFSIGNALED(status)
             ? fmt::format("was killed by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)))
             : fmt::format("exited with status {}", WEXITSTATUS(status));
}

}  // namespace longspan::peers
