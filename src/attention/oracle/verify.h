// Does a kernel compute what it should? One call runs it on random inputs and checks all that it wrote; the
// parts serve a caller that has run the kernel itself.
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
  uint64_t input_seed = 42;  // of the inputs' normal numbers
  bool counting = true;      // the counting oracle, too
};

struct VerifyReport {
  std::vector<TensorAccuracy> tensors;  // o, lse; then dq, dk, dv
  std::string counting;                 // "pass", "fail", or empty where it was not asked for
  int64_t rows = 0, keys = 0;           // compared with the fp64 oracle
  // One line each that says what is wrong and names the place; empty if nothing is.
  std::string forward_failure, backward_failure;  // of o and lse; of dq, dk and dv
  std::string failure;                            // the first of the two

  bool passed() const { return failure.empty(); }
};

// Runs the kernel's plan on normal inputs, with outputs and workspace filled with NaN before, and checks:
// every element is finite, rows without keys and keys without rows give 0 and -inf; sampled rows and keys
// agree with the fp64 oracle; every row counts its keys rightly. `direction` backward checks both passes: the
// backward pass gets the o and lse that the kernel's forward pass wrote, as in training.
// Where the problem asks for a deterministic kernel, it runs twice and the bits must agree.
VerifyReport verify(Plan& plan, const Problem& problem, Direction direction, const Device& device,
                    const VerifyOptions& options);

// Of a pass that has run once: `again` runs it another time on the same inputs. "", or which of its outputs
// (o and lse; dq, dk and dv) then holds other bits.
std::string difference_of_runs(Direction direction, const DeviceTensors& tensors,
                               const std::function<void()>& again);

// The same checks, but for counting, of what a kernel has written already. Changes nothing. `drift_keys`: of
// its PlanNotes.
VerifyReport verify_outputs(const Problem& problem, Direction direction, const DeviceTensors& tensors,
                            const SampleOptions& options, int64_t drift_keys = 0);

}  // namespace longspan
