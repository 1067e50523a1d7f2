// A persistent thread for each rank of a group; all run the same body on request.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "longspan/base.h"

namespace longspan {

class Crew {
 public:
  // Rank r uses ends[r]; devices[r] is its thread's current device.
  Crew(std::vector<std::unique_ptr<Communicator>> ends, std::vector<Device> devices);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  int size() const { return static_cast<int>(ends_.size()); }

  // Runs body(communicator) on every rank and returns when all have ended. If a body throws, its group fails
  // with that reason, and the first failure is rethrown here. The crew is unusable afterwards.
  void run(const std::function<void(Communicator&)>& body);

 private:
  void work(size_t rank);
  void stop();

  std::vector<std::unique_ptr<Communicator>> ends_;
  std::vector<Device> devices_;
  std::mutex mutex_;
  std::condition_variable told_, ended_;
  const std::function<void(Communicator&)>* body_ = nullptr;
  uint64_t generation_ = 0;
  size_t running_ = 0;
  bool stopping_ = false;
  std::exception_ptr first_;
  std::vector<std::jthread> threads_;
};

}  // namespace longspan
