// Checks whether a kernel computes the right result. One call runs the kernel on random inputs and checks
// every output; the parts serve callers that have already run the kernel.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "attention/kernel.h"
#include "attention/oracle/accuracy.h"
#include "attention/oracle/counting_oracle.h"
#include "attention/oracle/oracle_samples.h"
#include "attention/tensors.h"
#include "base/buffer.h"

namespace longspan {

struct VerifyOptions {
  SampleOptions samples;
  uint64_t input_seed = 42;  // seed of the normal inputs
  bool counting = true;      // run the counting oracle too
};

struct VerifyReport {
  std::vector<TensorAccuracy> tensors;  // o, lse; then dq, dk, dv
  std::string counting;                 // "pass", "fail", or empty: not requested, or not countable()
  int64_t rows = 0, keys = 0;           // number compared with the fp64 oracle
  // One line each: what is wrong and where; empty if the pass is right.
  std::string forward_failure, backward_failure;  // for o and lse; for dq, dk and dv
  std::string failure;                            // the first of the two that is not empty

  bool passed() const { return failure.empty(); }
};

// Runs the kernel's plan on normal inputs, with outputs and workspace pre-filled with NaN, and checks that
// every element is finite; that rows without keys and keys without rows give 0 and -inf; that sampled rows
// and keys agree with the fp64 oracle; and that every row counts its keys. With `direction` backward it
// checks both passes: the backward pass uses the o and lse of the kernel's own forward pass, as in training.
// If the problem asks for a deterministic kernel, it runs twice and the bits must agree.
VerifyReport verify(Plan& plan, const Problem& problem, Direction direction, const Device& device,
                    const VerifyOptions& options);

// Checks determinism of a pass that has run once: `again` repeats it on the same inputs. Returns "" or the
// output (o, lse; dq, dk, dv) whose bits differ.
std::string difference_of_runs(Direction direction, const DeviceTensors& tensors,
                               const std::function<void()>& again);

// The same checks, except counting, of outputs that a kernel has already written. Changes nothing.
// `drift_keys` is PlanNotes::drift_keys.
VerifyReport verify_outputs(const Problem& problem, Direction direction, const DeviceTensors& tensors,
                            const SampleOptions& options, int64_t drift_keys = 0);

}  // namespace longspan
