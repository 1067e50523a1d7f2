// How ranks exchange data: one required operation, on which everything else is built.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/device.h"

namespace longspan {

// One end of a transfer, in the memory of the device whose stream the exchange is given: `bytes` bytes at
// `data`, to or from rank `peer`.
struct Message {
  int peer = 0;
  void* data = nullptr;
  size_t bytes = 0;
  // Where row_bytes is set: rows of so many bytes, their beginnings `stride` bytes apart. Only for
  // communicators that take rows. If both ends have rows, they are equally long.
  size_t row_bytes = 0, stride = 0;
};

// What the device does while messages travel: a communicator may spend its multiprocessors on them if it
// waits.
enum class Meanwhile : bool { kComputes, kWaits };

// What comes to be computed with, and what has been computed. An exchange of one lane need not wait for one
// of the other that was begun before it.
enum class Lane : uint8_t { kInputs, kResults };
inline constexpr size_t kLanes = 2;

// Transfers under way. The buffers belong to the transfer until wait() returns.
class Transfer {
 public:
  virtual ~Transfer() = default;

  // CPU: returns when all messages have arrived and left. CUDA: makes `stream` wait for them and returns at
  // once. Throws an Error that names the rank and its reason if any rank has failed, or says which peer did
  // not answer within the communicator's time limit. Nothing waits for ever.
  virtual void wait(Stream stream) = 0;

  // The first half of wait(), which is still to be called: what is received has arrived, while others may
  // still be reading what was sent.
  virtual void arrive(Stream stream) { wait(stream); }
};

// One rank's end of a group. All ranks call in the same order; between any two ranks messages of a lane match
// in that order.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string_view name() const = 0;  // "threads", "mpi", "nccl"

  // Starts all of these at once. A rank may exchange with itself. Messages of zero bytes are allowed.
  virtual std::unique_ptr<Transfer> exchange(std::span<const Message> sends,
                                             std::span<const Message> receives, Stream stream,
                                             Meanwhile meanwhile = Meanwhile::kComputes,
                                             Lane lane = Lane::kInputs) = 0;
  virtual bool takes_rows() const { return false; }  // messages that do not lie in one piece
  // Does carrying them take multiprocessors from a kernel beside it? One that needs all at once would wait.
  virtual bool takes_multiprocessors() const { return false; }

  // Ends the group: every rank's present and later wait throws an Error with this reason.
  virtual void fail(const std::string& reason) = 0;

  // Waits until the stream has done all that was put into it, and throws as a transfer's wait does where that
  // takes too long. On the CPU nothing is ever left to do.
  virtual void synchronize(Stream) {}

  // Returns when all ranks have called it. Default: an exchange of one byte with every rank.
  virtual void barrier();

  // receive[r] of every rank gets that rank's r-th block. Default: one exchange.
  //  all_gather: `send` of this rank goes to block rank() of all; blocks are `bytes` long.
  //  all_to_all: block p of `send` goes to block rank() of rank p.
  virtual void all_gather(const void* send, void* receive, size_t bytes, Stream stream);
  virtual void all_to_all(const void* send, void* receive, size_t bytes, Stream stream);
};

}  // namespace longspan
