// Runs one rank's part of a schedule: any strategy, over any communicator, with any kernel.
#pragma once

#include <memory>

#include "attention/kernel.h"
#include "comm/communicator.h"
#include "cp/schedule/schedule.h"

namespace longspan {

// Where the time of one pass of one rank went, in seconds.
struct PassTimes {
  double compute_s = 0;         // attention
  double exposed_s = 0;         // waiting for data that had not arrived
  double reorder_s = 0;         // packing rows into messages and out of them
  double merge_s = 0;           // merging and adding partial results, converting results
  int64_t sent_bytes = 0;       // counted as they were sent
  int64_t peak_copy_bytes = 0;  // copies of other ranks' operands held at once at most
  int64_t held_bytes = 0;       // buffers made so far: copies, parts of results, packed rows
};

// The tensors of a call are the rank's own tokens, packed in the order of Schedule::owned, all heads:
// q, o, dout, dq [owned tokens, heads_q, head_dim]; k, v, dk, dv [owned tokens, heads_kv, head_dim]; lse
// [heads_q, owned]. Plans are made once, at construction. forward() of the same tensors must precede
// backward(): what it kept of other ranks' operands serves the backward pass.
class Executor {
 public:
  // The schedule must have passed check(). Throws an input error with the kernel's reason if it cannot do an
  // attend. For forward passes alone, with `until` kForward, less is planned.
  Executor(const Schedule& schedule, const Problem& problem, const Kernel& kernel, const Device& device,
           Communicator& communicator, Direction until = Direction::kBackward);
  ~Executor();

  void forward(const ForwardArgs& args, Stream stream);
  void backward(const BackwardArgs& args, Stream stream);

  // Waits for the end of the last pass, which a GPU may still be at.
  void finish(Stream stream);
  const PassTimes& times() const;  // of the last pass, once it has ended

  size_t plan_bytes() const;  // held by the kernel's plans

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace longspan
