// A peer's worker process, and the conversation with it: docs/reference/peer-protocol.md.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/spawn_environment.h"

namespace longspan::peers {

using Json = nlohmann::json;

// peers/ with worker.py in it: $LONGSPAN_PEERS, or beside this program as built or as installed. Empty if
// there is none.
std::string worker_folder();

// The interpreters to try, in order: $LONGSPAN_PYTHON, several separated by colons; python3 if it is not set.
std::vector<std::string> interpreters();

// A running worker. One that this object started ends with it.
class WorkerProcess {
 public:
  // kOfCaller: whatever ends the process group of a case ends its worker, too. kOwn: the worker serves
  // several cases' processes, and Ctrl-C on the terminal does not reach it.
  enum class Group : bool { kOfCaller, kOwn };

  // Starts one, in this environment with `variables` set. Throws an Error if the interpreter cannot be
  // started.
  WorkerProcess(const std::string& python, const std::string& folder, const std::string& adapter,
                Group group = Group::kOfCaller, const Variables& variables = {});
  // Speaks to one that another process started. Takes the descriptors.
  WorkerProcess(const std::string& adapter, int requests, int answers);
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  // Sends a request, calls `meanwhile`, and returns the answer. A worker that has died throws an Error that
  // says how. A worker that hangs is waited for: the case's time limit is the runner's affair.
  Json ask(const Json& request, const std::function<void()>& meanwhile = {});

  std::vector<int> descriptors() const { return {requests_, answers_}; }  // to speak to it from elsewhere

  // "was ended by signal 9 (Killed)", "ended with status 1"; empty while it runs.
  std::string how_it_ended();

 private:
  Json receive();
  [[noreturn]] void fail_gone();
  void note_end(int status);

  std::string name_;
  int requests_ = -1, answers_ = -1;
  int pid_ = -1;     // -1: another process's child, or it has ended
  std::string end_;  // how
  std::string received_;
};

}  // namespace longspan::peers
