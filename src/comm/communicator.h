// Data exchange between ranks: one required operation, from which all others are built.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "longspan/base.h"

namespace longspan {

// One end of a transfer to or from rank `peer`: `bytes` bytes at `data`, in the memory of the device whose
// stream is passed to the exchange.
struct Message {
  int peer = 0;
  void* data = nullptr;
  size_t bytes = 0;
  // If row_bytes is set, the message consists of rows of row_bytes bytes whose starts are `stride` bytes
  // apart. Only for communicators with takes_rows(). If both ends have rows, the rows have equal length.
  size_t row_bytes = 0, stride = 0;
};

// What the device does during a transfer. If it only waits, a communicator may use its SMs to move data.
enum class Meanwhile : bool { kComputes, kWaits };

// A message channel: operands to compute with, or results. An exchange on one channel need not wait for an
// earlier exchange on the other.
enum class Channel : uint8_t { kInputs, kResults };
inline constexpr size_t kChannels = 2;

// Transfers in progress. They own the use of the buffers until wait() returns.
class Transfer {
 public:
  virtual ~Transfer() = default;

  // CPU: returns when all messages have arrived and left. CUDA: makes `stream` wait for them and returns at
  // once. Throws an Error with the rank and its reason if any rank has failed, or with the peer that did not
  // answer within the communicator's time limit. No wait is unbounded.
  virtual void wait(Stream stream) = 0;

  // Waits for the received data only; peers may still be reading what was sent. wait() must still be called.
  virtual void arrive(Stream stream) { wait(stream); }
};

// One rank's endpoint in a group. All ranks must make their calls in the same order: messages of a channel
// between two ranks match in that order.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string_view name() const = 0;  // "threads", "mpi", "nccl"

  // Starts all messages at once. A rank may exchange with itself. Messages of zero bytes are allowed.
  virtual std::unique_ptr<Transfer> exchange(std::span<const Message> sends,
                                             std::span<const Message> receives, Stream stream,
                                             Meanwhile meanwhile = Meanwhile::kComputes,
                                             Channel channel = Channel::kInputs) = 0;
  virtual bool takes_rows() const { return false; }  // supports messages made of rows (Message::row_bytes)
  // Whether transfers use SMs. A concurrent kernel that needs all SMs at once would then wait.
  virtual bool takes_multiprocessors() const { return false; }

  // Ends the group: current and later waits of every rank throw an Error with this reason.
  virtual void fail(const std::string& reason) = 0;

  // Blocks until the stream is idle; throws like Transfer::wait() if that exceeds the time limit. Returns at
  // once on the CPU, where no work is queued.
  virtual void synchronize(Stream) {}

  // Fails the group if its messages have held up a device for longer than the time limit, and throws if the
  // group has failed. For a thread that looks after callers who wait for the device by their own means.
  virtual void watch() {}

  // Returns when all ranks have called it. The default exchanges one byte with every rank.
  virtual void barrier();

  // Block r of `receive` on every rank comes from rank r. The default is one exchange.
  //  all_gather: `send` goes to block rank() on every rank; blocks are `bytes` long.
  //  all_to_all: block p of `send` goes to block rank() on rank p.
  virtual void all_gather(const void* send, void* receive, size_t bytes, Stream stream);
  virtual void all_to_all(const void* send, void* receive, size_t bytes, Stream stream);
};

// Throws kInput unless a group can wait so long: 1 ms to 30 days.
void check_wait_limit(std::chrono::milliseconds limit);

// Fails the group with the exception being handled: "rank 2 failed: ...". For a `catch` that ends a thread.
void fail_group(Communicator& end) noexcept;

}  // namespace longspan
