// Ranks whose messages something else carries, such as a process group of another framework. In memory of the
// CPU.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "comm/communicator.h"

namespace longspan {

// What carries the messages. Ranks start the same transfers in the same order.
class Carrier {
 public:
  virtual ~Carrier() = default;

  // Starts messages of one or more bytes to and from other ranks. Messages between two ranks arrive in the
  // order in which they were started. Returns a number for wait(). Throws the reason of a failure.
  virtual int64_t start(std::span<const Message> sends, std::span<const Message> receives) = 0;

  // Returns when all messages of the transfer have arrived and left. Throws the reason if that has failed or
  // takes too long. Called once for a transfer.
  virtual void wait(int64_t transfer) = 0;

  virtual void fail(const std::string& reason) = 0;  // tells the other ranks, as far as that is possible
};

// The endpoint of `rank`. What the carrier throws ends the group on this rank: all later calls throw that.
std::unique_ptr<Communicator> carried_communicator(int rank, int size, std::unique_ptr<Carrier> carrier);

}  // namespace longspan
