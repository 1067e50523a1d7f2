// A plain attention kernel for tests of the oracles. It rounds as a GPU kernel does and is correct, or has
// one chosen fault.
#pragma once

#include <memory>
#include <string>

#include "attention/kernel.h"

namespace longspan {

enum class Fault {
  kNone,
  // faults of the mask, at one row
  kKeyMissing,  // the row misses its last key
  kKeyTooMany,  // the row sees a hidden key
  kRowShifted,  // the row's keys are shifted right by one
  kTileDropped,
  kMaskIgnored,
  kHeadMaskSwapped,  // uses the mask of the next KV head
  // faults of the forward pass
  kWrongScale,
  kRoundedScores,  // rounds the scores to 16 bits of mantissa
  kNoRescale,      // does not rescale the sums when the running maximum grows
  kSwappedHead,
  kLseOff,
  kLseOfBase2,
  kNan,
  kInfinite,
  kUnwrittenRow,
  kUnwrittenLse,
  kEmptyRowNotZero,
  kEmptyRowLseZero,
  kOneElementOff,
  // faults of the backward pass
  kDqKeyMissing,
  kDkRowMissing,
  kDvRowMissing,
  kNoDelta,
  kNoLseGradient,  // ignores dlse
  kDkUnscaled,
  kGroupNotSummed,
  kDkSwappedHead,
  kNanInDk,
  kUnwrittenDv,
  kUnwrittenDq,
  kUnseenKeyNotZero,
  kAccumulatesIntoOutput,  // adds to the previous contents of dq
  // faults of both passes
  kUsesWorkspace,  // relies on zeroed workspace
  kFlaky,          // two runs differ in one bit
  kThrows,
};

struct PlainOptions {
  Fault fault = Fault::kNone;
  int64_t head = 0;           // of the fault
  int64_t row = 0, key = 0;   // of the fault
  bool forward_only = false;  // has no backward pass
};

class PlainKernel final : public Kernel {
 public:
  explicit PlainKernel(PlainOptions options = {}) : options_(options) {}
  std::string_view name() const override { return "plain"; }
  std::string_view description() const override { return "for tests"; }
  DeviceKind device_kind() const override { return DeviceKind::kCpu; }
  Support supports(const Problem& problem, Direction direction, const Device& device) const override;
  std::unique_ptr<Plan> plan(const Problem& problem, const Device& device) const override;

 private:
  PlainOptions options_;
};

}  // namespace longspan
