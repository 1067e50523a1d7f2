#include "attention/slot_sums.h"

#include "attention/element.h"

namespace longspan {
namespace {

constexpr int64_t kBlock = 64;
constexpr int kBlockKind = kSlotKinds - 1;
constexpr int64_t kCheckpoint = 64;  // tokens between the stored prefix sums

uint64_t mix(uint64_t x) {  // the finaliser of Appleby's MurmurHash3
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  return x ^ x >> 33;
}

int64_t first_slot(int kind, int64_t slots) {
  return kind * slots / kSlotKinds;
}

}  // namespace

int64_t slot_of(int64_t token, int64_t head, int kind, int64_t slots) {
  const int64_t begin = first_slot(kind, slots), end = first_slot(kind + 1, slots);
  const int64_t hashed = kind == kBlockKind ? token / kBlock : token;
  const uint64_t hash =
      mix((static_cast<uint64_t>(hashed) * kSlotKinds + static_cast<uint64_t>(kind)) * 4096 +
          static_cast<uint64_t>(head) + 1);
  return begin + static_cast<int64_t>(hash % static_cast<uint64_t>(end - begin));
}

double sign_of(int64_t key, int64_t kv_head) {
  return mix(~(static_cast<uint64_t>(key) * 4096 + static_cast<uint64_t>(kv_head))) & 1 ? 1 : -1;
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

void write_zero(const TensorView& tensor, DeviceKind kind) {
  fill_bytes(tensor.data, kind, 0, tensor.bytes());
}

void set_slots(const TensorView& host, int64_t token, int64_t head, int64_t first, int64_t slots) {
  for (int kind = 0; kind < kSlotKinds; ++kind) {
    set_element(host, token, head, first + slot_of(token, head, kind, slots), 1);
  }
}

void write_slots(const TensorView& tensor, DeviceKind kind, int64_t slots) {
  write_rows(tensor, kind,
             [&](const TensorView& host, int64_t t, int64_t h) { set_slots(host, t, h, 0, slots); });
}

Allowance::Allowance(DType dtype, double roundings, double terms)
    : relative(1.05 * roundings * unit_roundoff(dtype) + unit_roundoff(DType::kF32) * (32 + terms)),
      absolute(1e-9 + (dtype == DType::kF16 ? 0x1p-24 * std::max(1.0, terms) : 0)) {}

std::string slot_in_words(int64_t slot, int64_t slots, const char* tokens) {
  return slot < first_slot(kBlockKind, slots)
             ? fmt::format("slot {} of {}", slot, tokens)
             : fmt::format("slot {} of blocks of {} {}", slot, kBlock, tokens);
}

}  // namespace longspan
