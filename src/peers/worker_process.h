// A peer's worker process and the communication with it: docs/reference/peer-protocol.md.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/spawn_environment.h"
#include "peers/worker_answer.h"

namespace longspan::peers {

// The interpreters to try, in order: $LONGSPAN_PYTHON, separated by colons; python3 if it is not set.
std::vector<std::string> interpreters();

// A running worker. If this object started it, its destructor ends it.
class WorkerProcess {
 public:
  // kOfCaller: killing the process group of a case also kills its worker. kOwn: the worker serves the
  // processes of several cases, and Ctrl-C on the terminal does not reach it.
  enum class Group : bool { kOfCaller, kOwn };

  // Starts a worker in this environment with `variables` set. Throws an Error if the interpreter cannot be
  // started.
  WorkerProcess(const std::string& python, const std::string& folder, const std::string& adapter,
                Group group = Group::kOfCaller, const Variables& variables = {});
  // Connects to a worker that another process started. Takes ownership of the descriptors.
  WorkerProcess(const std::string& adapter, int requests, int answers);
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  // Sends a request, calls `meanwhile`, and returns the answer. Throws an Error that says how the worker
  // ended if it has died, or what is wrong with its answer; nothing it says later is then heard. There is no
  // timeout: the runner enforces the case's time limit.
  Json ask(const Json& request, const std::function<void()>& meanwhile = {});

  bool broken() const { return broken_; }  // it died or gave a wrong answer

  std::vector<int> descriptors() const { return {requests_, answers_}; }  // to pass to another process

  // "was killed by signal 9 (Killed)", "exited with status 1"; empty while it runs.
  std::string how_it_ended();

 private:
  Json receive();
  std::string receive_line();
  [[noreturn]] void fail_gone();
  void note_end(int status);

  std::string name_;
  int requests_ = -1, answers_ = -1;
  int pid_ = -1;     // -1: started by another process, or ended
  std::string end_;  // how it ended
  std::string received_;
  bool broken_ = false;
};

}  // namespace longspan::peers
