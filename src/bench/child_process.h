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
  enum class How { kExited, kSignalled, kTimedOut, kInterrupted };
  How how = How::kExited;
  int status = 0;            // the exit status, or the signal's number
  std::string error_output;  // the last that it wrote to stdout and stderr
};

// Runs `program arguments...` with `input` as its standard input, hands each line that it writes to file
// descriptor kResultDescriptor to `on_line`, and waits for its end. When it ends, or `limit_s` passes, or the
// guard is interrupted, its whole process group is killed. It gets the descriptors of `inherited`, too, as
// kFirstInherited and the numbers that follow, and the environment with `variables` set.
inline constexpr int kResultDescriptor = 3, kFirstInherited = 4, kMostInherited = 4;
ChildEnd run_child(const std::string& program, const std::vector<std::string>& arguments,
                   const std::string& input, double limit_s, SignalGuard& guard,
                   const std::function<void(const std::string&)>& on_line,
                   const std::vector<int>& inherited = {}, const Variables& variables = {});

// In the child: it dies with its parent, and is the first that the out-of-memory killer picks.
void become_child();

std::string signal_name(int signal);  // "SIGSEGV"

}  // namespace longspan::bench
