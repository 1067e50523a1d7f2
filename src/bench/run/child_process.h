// A child process with a time limit: what it says, and how it ended. A crash, a hang or the kernel's
// out-of-memory killer takes the child alone.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/spawn_environment.h"

namespace longspan::bench {

// While one lives, SIGINT, SIGTERM and SIGHUP do not end the process but are told by interrupted().
// One at a time; it may be asked from several threads.
class SignalGuard {
 public:
  SignalGuard();
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

  bool interrupted();                     // has one arrived since the guard was made?
  int descriptor() const { return fd_; }  // readable when one arrives

 private:
  int fd_ = -1;
  std::atomic<bool> interrupted_ = false;
};

struct ChildEnd {
  enum class How { kAnswered, kExited, kSignalled, kTimedOut, kInterrupted };
  How how = How::kExited;
  int status = 0;            // the exit status, or the signal's number
  std::string error_output;  // the last that it wrote to stdout and stderr
};

// A child, and all that it starts: they are killed with this object.
class ChildProcess {
 public:
  // Starts `program arguments...` in this environment with `variables` set.
  ChildProcess(const std::string& program, const std::vector<std::string>& arguments,
               const Variables& variables = {});
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Writes a line to its standard input, which is a socket; copies of the descriptors go with it (Requests
  // takes them). Of a child that has died listen() tells.
  void send(const std::string& line, const std::vector<int>& descriptors = {});
  void close_input();

  // Hands each line that it writes to file descriptor kResultDescriptor to `on_line` until that says that it
  // was the answer, and otherwise until the child ends, `limit_s` passes or the guard is interrupted: then
  // all is killed.
  using OnLine = std::function<bool(const std::string&)>;
  ChildEnd listen(double limit_s, SignalGuard& guard, const OnLine& on_line);

  bool ended() const;

 private:
  int kill_all();

  int input_ = -1, output_ = -1, result_ = -1;  // this side's ends
  std::string lines_;                           // of the result, not handed out yet
  int pid_ = -1, status_ = 0;
  bool reaped_ = false;
};
inline constexpr int kResultDescriptor = 3;

// Writes a line to a socket, with copies of the descriptors: what send() does.
void pass_line(int socket, const std::string& line, const std::vector<int>& descriptors);

// In the child: the lines that its parent sends, each with its descriptors. A socket's stream does not tell
// which of several lines descriptors came with, so a parent waits for the answer to each.
class Requests {
 public:
  explicit Requests(int socket) : socket_(socket) {}

  struct Request {
    std::string line;
    std::vector<int> descriptors;  // the taker's
  };
  std::optional<Request> next();  // nothing where the parent has closed its end

 private:
  int socket_;
  std::string received_;
  std::vector<int> descriptors_;
};

// In the child: it dies with its parent, and is the first that the out-of-memory killer picks.
void become_child();

std::string signal_name(int signal);  // "SIGSEGV"

}  // namespace longspan::bench
