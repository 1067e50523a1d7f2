// Counting by slots: what the two counting oracles (counting_oracle.h) share.
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

// 1 or -1.
double sign_of(int64_t key, int64_t kv_head);

// Sums of token weights by slot over any range of tokens, by prefix sums at checkpoints: O(slots) a range.
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

  // sums[slot] += the sum of the weights of the range's tokens of that slot.
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

// [rows + 1]: whether what row i sees may differ from what row i - 1 sees. O(bands + rows).
std::vector<char> changes(const Mask& mask);

inline constexpr int64_t kCheckedTokens = 256;  // tokens of one task

// The text of the first failure: check(begin, end) of tokens [begin, end) returns it, or "". In parallel.
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

// How far a slot's sum may be off, in the worst case: its terms are equal, so their roundings do not cancel.
// Relative to the sum of the terms' magnitudes: the roundings to the inputs' dtype, those of lse and the
// exponential, and one for each f32 addition. Absolute: for a dtype with a smallest number, to which what is
// compared was rounded when it was stored, multiplied by `stored_scale`, 1 at most.
struct Allowance {
  double relative = 0, absolute = 0;
  Allowance(DType dtype, double roundings, double terms, double stored_scale = 1);
  bool allows(double got, double want, double magnitude) const {
    return std::abs(got - want) <= relative * magnitude + absolute;
  }
};

// Where an element counts: "slot 5 of keys", "slot 3 of blocks of 64 keys".
std::string slot_in_words(int64_t slot, int64_t slots, const char* tokens);

}  // namespace longspan
