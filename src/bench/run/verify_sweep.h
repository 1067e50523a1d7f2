// Which cases `longspan verify` runs, and what becomes of each: every kernel x mask x length x heads x dtype.
// Kernels come in as interfaces.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "attention/kernel.h"
#include "attention/oracle/verify.h"
#include "mask/patterns/patterns.h"

namespace longspan {

// A mask by name: a pattern; a file (*.json); "empty", without a visible pair; or another one's part:
//   shuffled:MASK    some of its rows against some of its columns, in shuffled pieces, as a shard of a
//   context-
//                    parallel strategy sees them: rectangular, with rows without keys and keys without rows
//   late_keys:MASK   all rows against the second half of the columns
//   early_rows:MASK  the first half of the rows against all columns
// Throws an input error for what is no such name, or cannot be drawn at the length.
HeadMasks masks_from_name(const std::string& name, const PatternOptions& options);

// Throws an input error that lists what is allowed.
void check_mask_name(const std::string& name);

struct Heads {
  int64_t q = 0, kv = 0;
};

struct VerifyCase {
  const Kernel* kernel = nullptr;
  std::string mask;
  PatternOptions options;  // with the length and the seed, which is that of the inputs, too
  Heads heads;
  int64_t head_dim = 0;
  DType dtype = DType::kF32;
  bool forward = true, backward = true;  // what is reported; a backward case needs a forward pass, too
  float scale = 0;
  bool deterministic = false, fp32_output = false;
  bool counting = true;
  // The shape was chosen for variety, not asked for: where the kernel cannot do it, others that it can do are
  // as good.
  bool adapt = false;
};

// "longspan verify --kernel cpu-flash --mask causal ...": runs this case alone, again.
std::string command_of(const VerifyCase& c, Direction direction);

struct SweepOptions {
  std::vector<const Kernel*> kernels;
  std::vector<std::string> masks;  // none: all patterns, and parts of some
  std::vector<int64_t> seqlens;    // none: 1, 2, 63, 64, 65, 127, 129, 1000, 4097
  std::vector<Heads> heads;        // none: as many KV heads as query heads, and a third of them
  std::vector<DType> dtypes;       // none: all
  bool forward = true, backward = true;
  // Unset, these vary with the length, so that the default sweep meets many values without their product.
  std::optional<int64_t> head_dim;
  std::optional<float> scale;
  std::optional<bool> deterministic, fp32_output;
  PatternOptions pattern;  // seed, and what else the user set
};
std::vector<VerifyCase> expand(const SweepOptions& options);

struct CaseOutcome {
  enum class Status { kPassed, kFailed, kSkipped };
  VerifyCase verified;  // as it ran
  Direction direction = Direction::kForward;
  Status status = Status::kPassed;
  std::string reason;  // what is wrong, or why it was skipped
  VerifyReport report;
};

// One outcome for each direction asked for. Never throws for what the kernel does.
std::vector<CaseOutcome> run_case(const VerifyCase& c, const std::vector<Device>& devices);

struct SweepSummary {
  int64_t passed = 0, failed = 0, skipped = 0;
  std::map<std::string, int64_t> skip_reasons;  // "cpu-flash: needs head_dim ..." -> cases
};
// Calls `watch` with each outcome as it comes.
SweepSummary sweep(const std::vector<VerifyCase>& cases, const std::vector<Device>& devices,
                   const std::function<void(const CaseOutcome&)>& watch);

}  // namespace longspan
