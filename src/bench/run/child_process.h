// A child process with a time limit: its output, and how it ended. A crash, a hang or the out-of-memory
// killer ends only the child.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/spawn_environment.h"

namespace longspan::bench {

// While a guard exists, SIGINT, SIGTERM and SIGHUP do not end the process; interrupted() reports them. Only
// one guard may exist at a time. Any thread may call interrupted().
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
  void (*pipe_handler_)(int) = nullptr;  // of SIGPIPE, before
  std::atomic<bool> interrupted_ = false;
};

struct ChildEnd {
  enum class How { kAnswered, kExited, kSignalled, kTimedOut, kInterrupted };
  How how = How::kExited;
  int status = 0;            // the exit status, or the signal's number
  std::string error_output;  // the last bytes of its stdout and stderr
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

  // Writes a line to its standard input, which is a socket, with copies of the descriptors, which Requests
  // receives. If the child has died, listen() reports it.
  void send(const std::string& line, const std::vector<int>& descriptors = {});
  void close_input();

  // Passes each line that the child writes to kResultDescriptor to `on_line`, until that returns true: the
  // line was the answer. If the child ends, `limit_s` passes or the guard is interrupted first, listen()
  // kills the child and its children.
  using OnLine = std::function<bool(const std::string&)>;
  ChildEnd listen(double limit_s, SignalGuard& guard, const OnLine& on_line);

  bool ended() const;

 private:
  int kill_all();

  int input_ = -1, output_ = -1, result_ = -1;  // the parent's ends
  std::string lines_;                           // result lines that are not delivered yet
  int pid_ = -1, status_ = 0;
  bool reaped_ = false;
};
inline constexpr int kResultDescriptor = 3;

// Writes a line to a socket, with copies of the descriptors. Used by send().
void pass_line(int socket, const std::string& line, const std::vector<int>& descriptors);

// In the child: reads the lines that the parent sends, with their descriptors. A socket does not say which
// line a descriptor belongs to, so the parent sends one line and waits for its answer.
class Requests {
 public:
  explicit Requests(int socket) : socket_(socket) {}

  struct Request {
    std::string line;
    std::vector<int> descriptors;  // owned by the caller
  };
  std::optional<Request> next();  // nothing after the parent has closed its end

 private:
  int socket_;
  std::string received_;
  std::vector<int> descriptors_;
};

// Called in the child. It then ends with its parent, and the out-of-memory killer selects it first.
void become_child();

std::string signal_name(int signal);  // "SIGSEGV"

}  // namespace longspan::bench
