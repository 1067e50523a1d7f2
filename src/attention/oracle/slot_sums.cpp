#include "attention/oracle/slot_sums.h"

#include <fmt/format.h>

namespace longspan {
namespace {

constexpr int64_t kCheckpoint = 64;  // tokens between stored prefix sums

}  // namespace

double sign_of(int64_t key, int64_t kv_head) {
  return mixed(~(static_cast<uint64_t>(key) * 4096 + static_cast<uint64_t>(kv_head))) & 1 ? 1 : -1;
}

void SlotSums::sum() {
  const auto tokens = static_cast<int64_t>(weight_.size());
  prefix_.assign((tokens / kCheckpoint + 1) * slots_, 0);
  std::vector<double> sum(slots_, 0);
  for (int64_t t = 0; t <= tokens; ++t) {
    if (t % kCheckpoint == 0) std::copy(sum.begin(), sum.end(), &prefix_[t / kCheckpoint * slots_]);
    if (t == tokens) break;
    for (int kind = 0; kind < kSlotKinds; ++kind) sum[slot_[t * kSlotKinds + kind]] += weight_[t];
  }
}

void SlotSums::add_prefix(int64_t end, double sign, double* sums) const {
  const double* prefix = &prefix_[end / kCheckpoint * slots_];
  for (int64_t s = 0; s < slots_; ++s) sums[s] += sign * prefix[s];
  for (int64_t t = end / kCheckpoint * kCheckpoint; t < end; ++t) {
    for (int kind = 0; kind < kSlotKinds; ++kind) sums[slot_[t * kSlotKinds + kind]] += sign * weight_[t];
  }
}

std::vector<char> changes(const Mask& mask) {
  std::vector<int32_t> diagonals(mask.rows() + 1, 0);
  std::vector<char> change(mask.rows() + 1, 0);
  for (const Band& band : mask.bands()) {
    change[band.q.begin] = change[band.q.end] = 1;
    if (band.lo != kUnboundedBelow || band.hi != kUnboundedAbove) {
      ++diagonals[band.q.begin];
      --diagonals[band.q.end];
    }
  }
  int32_t open = 0;
  for (int64_t i = 0; i < mask.rows(); ++i) {
    open += diagonals[i];
    if (open > 0) change[i] = 1;
  }
  return change;
}

Allowance::Allowance(DType dtype, double roundings, double terms, double stored_scale)
    : relative(1.05 * roundings * unit_roundoff(dtype) + unit_roundoff(DType::kF32) * (32 + terms)),
      absolute(1e-9 + (dtype == DType::kF16
                           ? 0x1p-24 * std::max(1.0, terms) + 0x1p-25 * (1 / stored_scale - 1)
                           : 0)) {}

std::string slot_in_words(int64_t slot, int64_t slots, const char* tokens) {
  return slot < first_slot(kBlockKind, slots)
             ? fmt::format("slot {} of {}", slot, tokens)
             : fmt::format("slot {} of blocks of {} {}", slot, kSlotBlock, tokens);
}

}  // namespace longspan
