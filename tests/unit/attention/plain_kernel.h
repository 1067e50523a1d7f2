// A plain attention kernel for tests of the oracles: right, as a GPU kernel rounds, or wrong in one chosen
// way.
#pragma once

#include <memory>
#include <string>

#include "attention/kernel.h"

namespace longspan {

enum class Fault {
  kNone,
  // the mask, at one row
  kKeyMissing,  // the last key that the row sees is not seen
  kKeyTooMany,  // a key is seen that is hidden
  kRowShifted,  // all keys of the row are one too far to the right
  kTileDropped,
  kMaskIgnored,
  kHeadMaskSwapped,  // the mask of the next KV head
  // the forward pass
  kWrongScale,
  kNoRescale,  // of what was summed when the running maximum grows
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
  // the backward pass
  kDqKeyMissing,
  kDkRowMissing,
  kDvRowMissing,
  kNoDelta,
  kDkUnscaled,
  kGroupNotSummed,
  kDkSwappedHead,
  kNanInDk,
  kUnwrittenDv,
  kUnwrittenDq,
  kUnseenKeyNotZero,
  kAccumulatesIntoOutput,  // what dq held is added to
  // both
  kUsesWorkspace,  // counts on zeroed workspace
  kFlaky,          // two runs differ in a bit
  kThrows,
};

struct PlainOptions {
  Fault fault = Fault::kNone;
  int64_t head = 0;           // of the fault
  int64_t row = 0, key = 0;   // of the fault
  bool forward_only = false;  // supports no backward pass
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
