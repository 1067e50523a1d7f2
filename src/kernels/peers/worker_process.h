// A peer's worker process, and the conversation with it: docs/peers.md.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace longspan::peers {

using Json = nlohmann::json;

// peers/ with worker.py in it: $LONGSPAN_PEERS, or beside this program as built or as installed. Empty if
// there is none.
std::string worker_folder();

// The interpreters to try, in order: $LONGSPAN_PYTHON, several separated by colons; python3 if it is not set.
std::vector<std::string> interpreters();

// A running worker; it ends with this object. In a case's process it belongs to the process's group, so that
// whatever ends a case ends it, too.
class WorkerProcess {
 public:
  // Throws an input error if the interpreter cannot be started.
  WorkerProcess(const std::string& python, const std::string& folder, const std::string& adapter);
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  // Sends a request, calls `meanwhile`, and returns the answer. A worker that has died throws an Error that
  // says how. A worker that hangs is waited for: the case's time limit is the runner's affair.
  Json ask(const Json& request, const std::function<void()>& meanwhile = {});

 private:
  Json receive();
  std::string how_it_ended();

  std::string name_;
  int requests_ = -1, answers_ = -1;
  int pid_ = -1;
  std::string received_;
};

}  // namespace longspan::peers
