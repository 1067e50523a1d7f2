// The meeting point of a job's processes, over TCP: small broadcasts from rank 0, barriers, and reports of
// failed or dead ranks.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/launch.h"

namespace longspan {

// A group's channel for failures and barriers.
class Alarm {
 public:
  virtual ~Alarm() = default;
  virtual void fail(const std::string& reason) = 0;  // reports to all ranks; the first reason counts
  virtual std::string failure() = 0;                 // empty while no rank has failed
  virtual void barrier() = 0;                        // throws the group's failure, or fails it on a timeout
};

class Rendezvous : public Alarm {
 public:
  // Connects all ranks: rank 0 listens on the port, the others connect to its host. After `limit`, throws an
  // input error with the missing ranks, or with the address that was tried. Later waits are bounded by
  // `waits` if given, else by `limit`. The loss of a host is detected after two minutes.
  static std::unique_ptr<Rendezvous> meet(const Launch& launch, std::chrono::milliseconds limit);
  static std::unique_ptr<Rendezvous> meet(const Launch& launch, std::chrono::milliseconds limit,
                                          std::chrono::milliseconds waits);

  // Sends rank 0's text to all ranks, which return it. All ranks call in the same order.
  virtual std::string broadcast(const std::string& of_rank_0) = 0;

  virtual bool left() = 0;  // whether rank 0 has left or died
};

}  // namespace longspan
