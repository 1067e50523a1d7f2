// Where the processes of a job meet, over TCP, before they can talk by other means: it carries small messages
// from rank 0, barriers, and the news that a rank has failed or died.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/launch.h"

namespace longspan {

// What the ranks of a group tell each other about its state.
class Alarm {
 public:
  virtual ~Alarm() = default;
  virtual void fail(const std::string& reason) = 0;  // tells all ranks; the first reason counts
  virtual std::string failure() = 0;                 // empty while the group is well
  virtual void barrier() = 0;                        // throws the failure, also one of having waited too long
};

class Rendezvous : public Alarm {
 public:
  // Meets all ranks: rank 0 listens at the port, the others come to its host. Throws an input error that
  // names the ranks that have not come, or where it was looked for, after `limit`, which bounds every wait
  // later, too, unless `waits` is given for those. A host that has vanished is missed after two minutes.
  static std::unique_ptr<Rendezvous> meet(const Launch& launch, std::chrono::milliseconds limit);
  static std::unique_ptr<Rendezvous> meet(const Launch& launch, std::chrono::milliseconds limit,
                                          std::chrono::milliseconds waits);

  // What rank 0 gives goes to all, which return it. All ranks call in the same order.
  virtual std::string broadcast(const std::string& of_rank_0) = 0;

  virtual bool left() = 0;  // has rank 0 left, or died?
};

}  // namespace longspan
