// A child process with a time limit: what it writes, and how it ends. A crash, a hang or the out-of-memory
// killer ends the child alone.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/spawn_environment.h"

namespace longspan::bench {

// While a guard exists, SIGINT, SIGTERM and SIGHUP do not end the process; interrupted() reports them. There
// may be one guard at a time; any thread may ask it.
class SignalGuard {
 public:
  SignalGuard();
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

  bool interrupted();                     // a signal has arrived since the guard was made
  int descriptor() const { return fd_; }  // readable when one arrives

 private:
  int fd_ = -1;
  std::atomic<bool> interrupted_ = false;
};

struct ChildEnd {
  enum class How { kAnswered, kExited, kSignalled, kTimedOut, kInterrupted };
  How how = How::kExited;
  int status = 0;            // the exit status, or the signal's number
  std::string error_output;  // the end of what it wrote to stdout and stderr
};

// A child process and its own children. The destructor kills them.
class ChildProcess {
 public:
  // Starts `program arguments...` in this environment with `variables` set.
  ChildProcess(const std::string& program, const std::vector<std::string>& arguments,
               const Variables& variables = {});
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Writes a line to its standard input, which is a socket; copies of the descriptors go with it (Requests
  // takes them). listen() reports a child that has died.
  void send(const std::string& line, const std::vector<int>& descriptors = {});
  void close_input();

  // Passes each line that the child writes to kResultDescriptor to `on_line`, until that returns true: the
  // line was the answer. If the child ends, `limit_s` passes or the guard is interrupted before, it kills the
  // child and its children.
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

// Writes a line to a socket, with copies of the descriptors, as send() does.
void pass_line(int socket, const std::string& line, const std::vector<int>& descriptors);

// In the child: reads the lines that the parent sends, with their descriptors. A socket does not say which
// line a descriptor belongs to, so the parent sends one line and waits for its answer.
class Requests {
 public:
  explicit Requests(int socket) : socket_(socket) {}

  struct Request {
    std::string line;
    std::vector<int> descriptors;  // the taker's
  };
  std::optional<Request> next();  // nothing after the parent has closed its end

 private:
  int socket_;
  std::string received_;
  std::vector<int> descriptors_;
};

// Called in the child: it then ends with its parent, and the out-of-memory killer picks it first.
void become_child();

std::string signal_name(int signal);  // "SIGSEGV"

}  // namespace longspan::bench
