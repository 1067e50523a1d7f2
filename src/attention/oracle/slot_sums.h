// Sums by slots, shared by the forward and backward counting oracles (counting_oracle.h).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include "attention/oracle/accuracy.h"
#include "attention/oracle/slots.h"
#include "attention/problem.h"
#include "attention/tensors.h"
#include "base/parallel.h"

namespace longspan {

// The sign of a key: 1 or -1.
double sign_of(int64_t key, int64_t kv_head);

// Sums of token weights by slot over any range of tokens, from prefix sums at checkpoints. A range costs
// O(slots).
class SlotSums {
 public:
  template <class Slot, class Weight>  // slot(token, kind), weight(token)
  SlotSums(int64_t tokens, int64_t slots, Slot slot, Weight weight)
      : slots_(slots), slot_(tokens * kSlotKinds), weight_(tokens) {
    for (int64_t t = 0; t < tokens; ++t) {
      for (int kind = 0; kind < kSlotKinds; ++kind) {
        slot_[t * kSlotKinds + kind] = static_cast<int32_t>(slot(t, kind));
      }
      weight_[t] = weight(t);
    }
    sum();
  }

  // Adds the weights of the range's tokens to sums[slot].
  void add(Range range, double* sums) const {
    add_prefix(range.end, 1, sums);
    add_prefix(range.begin, -1, sums);
  }

 private:
  void sum();
  void add_prefix(int64_t end, double sign, double* sums) const;

  int64_t slots_;
  std::vector<int32_t> slot_;  // [tokens, kinds]
  std::vector<double> weight_;
  std::vector<double> prefix_;  // [checkpoints, slots]
};

// [rows + 1]: whether row i may see other keys than row i - 1. O(bands + rows).
std::vector<char> changes(const Mask& mask);

inline constexpr int64_t kCheckedTokens = 256;  // tokens per task

// Runs check(begin, end) on blocks of tokens in parallel and returns the text of the first failure, or "".
template <class Check>
std::string first_failure(int64_t tokens, Check check) {
  std::mutex mutex;
  int64_t first = std::numeric_limits<int64_t>::max();
  std::string failure;
  parallel_for((tokens + kCheckedTokens - 1) / kCheckedTokens, [&](int64_t chunk, int) {
    {
      std::scoped_lock lock(mutex);
      if (chunk > first) return;
    }
    std::string found = check(chunk * kCheckedTokens, std::min(tokens, (chunk + 1) * kCheckedTokens));
    if (found.empty()) return;
    std::scoped_lock lock(mutex);
    if (chunk < first) {
      first = chunk;
      failure = std::move(found);
    }
  });
  return failure;
}

// The worst-case error of a slot's sum. The terms are equal, so their roundings do not cancel. `Relative` is
// relative to the sum of the terms' magnitudes: the roundings to the inputs' dtype, those of lse and the
// exponential, and one per f32 addition. `Absolute` is for dtypes with a smallest number: the compared value
// was rounded to it when stored, and then multiplied by `stored_scale`, at most 1.
struct Allowance {
  double relative = 0, absolute = 0;
  Allowance(DType dtype, double roundings, double terms, double stored_scale = 1);
  bool allows(double got, double want, double magnitude) const {
    return std::abs(got - want) <= relative * magnitude + absolute;
  }
};

// A description of the slot that an element counts: "slot 5 of keys", "slot 3 of blocks of 64 keys".
std::string slot_in_words(int64_t slot, int64_t slots, const char* tokens);

}  // namespace longspan
