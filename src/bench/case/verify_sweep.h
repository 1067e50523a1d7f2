// The cases of `longspan verify` (every kernel x mask x length x heads x dtype), and their outcomes.
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

// A mask by name: a pattern; a file (*.json); "empty", with no visible pair; or a part of another mask:
//   shuffled:MASK    shuffled pieces of its rows against shuffled pieces of its columns, as in a shard of a
//                    context-parallel strategy: rectangular, with rows without keys and keys without rows
//   late_keys:MASK   all rows against the second half of the columns
//   early_rows:MASK  the first half of the rows against all columns
// Throws an input error for an unknown name or a mask that cannot be drawn at this length.
HeadMasks masks_from_name(const std::string& name, const PatternOptions& options);

// Throws an input error that lists what is allowed.
void check_mask_name(const std::string& name);

struct Heads {
  int64_t q = 0, kv = 0;
};

struct VerifyCase {
  const Kernel* kernel = nullptr;
  std::string mask;
  PatternOptions options;  // with the length, and the seed of the mask and the inputs
  Heads heads;
  int64_t head_dim = 0, head_dim_v = 0;  // as in Problem
  DType dtype = DType::kF32;
  bool forward = true, backward = true;  // what is reported; a backward case also runs the forward pass
  float scale = 0, softcap = 0;
  bool alibi = false;  // with alibi_slopes()
  bool sinks = false;  // drawn from the seed; then no keys are counted
  bool deterministic = false, fp32_output = false, lse_gradient = false;
  bool counting = true;
  // The shape was chosen for variety, not by the user. If the kernel does not support it, another shape may
  // replace it.
  bool adapt = false;
};

// The command that repeats this case alone: "longspan verify --kernel cpu-flash --mask causal ...".
std::string command_of(const VerifyCase& c, Direction direction);

struct SweepOptions {
  std::vector<const Kernel*> kernels;
  std::vector<std::string> masks;  // empty: all patterns, and parts of some
  std::vector<int64_t> seqlens;    // empty: 1, 2, 63, 64, 65, 127, 129, 1000, 4097
  std::vector<Heads> heads;        // empty: as many KV heads as query heads, and a third of them
  std::vector<DType> dtypes;       // empty: all
  bool forward = true, backward = true;
  // If none of these is set, they vary with the length, so that the default sweep covers many values without
  // taking their product.
  std::optional<int64_t> head_dim, head_dim_v;
  std::optional<float> scale, softcap;
  std::optional<bool> alibi, deterministic, fp32_output, lse_gradient;
  bool sinks = false;
  PatternOptions pattern;  // seed and other options that the user set
};
std::vector<VerifyCase> expand(const SweepOptions& options);

struct CaseOutcome {
  enum class Status { kPassed, kFailed, kSkipped };
  VerifyCase verified;  // as it ran
  Direction direction = Direction::kForward;
  Status status = Status::kPassed;
  std::string reason;  // of a failure or a skip
  VerifyReport report;
};

// One outcome for each requested direction. Failures of the kernel are outcomes, not exceptions.
std::vector<CaseOutcome> run_case(const VerifyCase& c, const std::vector<Device>& devices);

struct SweepSummary {
  int64_t passed = 0, failed = 0, skipped = 0;
  std::map<std::string, int64_t> skip_reasons;  // "cpu-flash: needs head_dim ..." -> cases
};
// Calls `watch` with each outcome when it is known.
SweepSummary sweep(const std::vector<VerifyCase>& cases, const std::vector<Device>& devices,
                   const std::function<void(const CaseOutcome&)>& watch);

}  // namespace longspan
