// Runs one rank's part of a schedule, for any strategy, communicator and kernel.
#pragma once

#include <memory>

#include "attention/kernel.h"
#include "comm/communicator.h"
#include "cp/schedule/schedule.h"

namespace longspan {

struct Scratch;

// The time breakdown of one pass on one rank, in seconds.
struct PassTimes {
  double compute_s = 0;         // attention
  double exposed_s = 0;         // exposed communication: waiting for data
  double reorder_s = 0;         // packing rows into messages and unpacking them
  double merge_s = 0;           // merging and adding partial results, converting results
  int64_t sent_bytes = 0;       // counted while sending
  int64_t peak_copy_bytes = 0;  // peak bytes of copies of other ranks' operands
  int64_t held_bytes = 0;       // buffers allocated so far (copies, partial results, packed rows), and what
                                // the forward pass keeps
};

// The tensors of a call hold the rank's own tokens, packed in the order of Schedule::owned, all heads: q, dq
// [owned tokens, heads_q, head_dim], o, dout [.., head_dim_v]; k, dk [owned tokens, heads_kv, head_dim], v,
// dv
// [.., head_dim_v]; lse [heads_q, owned tokens]. Plans are made once, at construction.
//
// The only state that outlasts a pass is what forward() writes to `kept`, so the passes of many layers may
// run in any order, the same on all ranks. All calls of one executor use its buffers: queue them in one
// stream, or in streams that wait for one another. The same holds for all executors that share a scratch.
class Executor {
 public:
  enum class Timing { kOn, kOff };  // kOff: times() has only bytes; a GPU's host saves two events a section

  // The schedule must have passed check(). Throws an input error with the kernel's reason if the kernel
  // cannot run an attend. With `until` kForward, only forward passes are planned.
  // `scratch`: shared with other executors of the device; null: its own.
  Executor(const Schedule& schedule, const Problem& problem, const Kernel& kernel, const Device& device,
           Communicator& communicator, Direction until = Direction::kBackward,
           std::shared_ptr<Scratch> scratch = nullptr, Timing timing = Timing::kOn);
  ~Executor();

  // `kept`: kept_bytes() bytes aligned to 256, which backward() reads with the tensors of this forward();
  // null if none follows.
  size_t kept_bytes() const;
  void forward(const ForwardArgs& args, void* kept, Stream stream);
  void backward(const BackwardArgs& args, const void* kept, Stream stream);

  // Blocks until the last pass has ended, which may still be running on a GPU.
  void finish(Stream stream);
  const PassTimes& times() const;  // of the last pass, after it has ended

  size_t plan_bytes() const;  // held by the kernel's plans

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace longspan
