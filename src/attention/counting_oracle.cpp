#include "attention/counting_oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>

#include "attention/accuracy.h"
#include "base/error.h"
#include "base/parallel.h"

namespace longspan {
namespace {

constexpr int64_t kCheckpoint = 64;  // tokens between the stored prefix sums
constexpr int64_t kChunk = 256;      // rows or keys that one task checks

// Slots by key catch a mask that is off by one; slots by block keep their resolution where a slot holds
// thousands of keys.
constexpr int64_t kSlotBlocks[] = {1, 64};

uint64_t mix(uint64_t x) {  // the finaliser of MurmurHash3, by Appleby
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  return x ^ x >> 33;
}

// Different for each head, so that a kernel that mixes up heads is caught.
int64_t slot_of(int64_t token, int64_t head, int64_t block, int64_t slots) {
  return static_cast<int64_t>(mix(static_cast<uint64_t>(token / block) * 4096 + static_cast<uint64_t>(head)) %
                              static_cast<uint64_t>(slots));
}

double sign_of(int64_t key, int64_t kv_head) {
  return mix(~(static_cast<uint64_t>(key) * 4096 + static_cast<uint64_t>(kv_head))) & 1 ? 1 : -1;
}

// Sums of token weights by slot over any range of tokens, by prefix sums at checkpoints.
class SlotSums {
 public:
  template <class Slot, class Weight>
  SlotSums(int64_t tokens, int64_t slots, Slot slot, Weight weight)
      : slots_(slots), slot_(tokens), weight_(tokens), prefix_((tokens / kCheckpoint + 1) * slots, 0) {
    std::vector<double> sum(slots, 0);
    for (int64_t t = 0; t < tokens; ++t) {
      if (t % kCheckpoint == 0) std::copy(sum.begin(), sum.end(), &prefix_[t / kCheckpoint * slots]);
      slot_[t] = static_cast<int32_t>(slot(t));
      weight_[t] = weight(t);
      sum[slot_[t]] += weight_[t];
    }
    if (tokens % kCheckpoint == 0) std::copy(sum.begin(), sum.end(), &prefix_[tokens / kCheckpoint * slots]);
  }

  void add(Range range, double* sums) const {
    add_prefix(range.end, 1, sums);
    add_prefix(range.begin, -1, sums);
  }

 private:
  void add_prefix(int64_t end, double sign, double* sums) const {
    const double* prefix = &prefix_[end / kCheckpoint * slots_];
    for (int64_t s = 0; s < slots_; ++s) sums[s] += sign * prefix[s];
    for (int64_t t = end / kCheckpoint * kCheckpoint; t < end; ++t) sums[slot_[t]] += sign * weight_[t];
  }

  int64_t slots_;
  std::vector<int32_t> slot_;
  std::vector<double> weight_;
  std::vector<double> prefix_;  // [checkpoints, slots]
};

// Whether what row i sees may differ from what row i - 1 sees.
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

// Calls check(task's first row, last row + 1) over all rows in parallel, until one says what is wrong.
template <class Check>
std::string first_failure(int64_t rows, Check check) {
  std::mutex mutex;
  int64_t first = std::numeric_limits<int64_t>::max();
  std::string failure;
  parallel_for((rows + kChunk - 1) / kChunk, [&](int64_t chunk, int) {
    {
      std::scoped_lock lock(mutex);
      if (chunk > first) return;
    }
    std::string found = check(chunk * kChunk, std::min(rows, (chunk + 1) * kChunk));
    if (found.empty()) return;
    std::scoped_lock lock(mutex);
    if (chunk < first) {
      first = chunk;
      failure = std::move(found);
    }
  });
  return failure;
}

template <class T>
void store(const TensorView& tensor, int64_t token, int64_t head, int64_t d, float x) {
  T* row = tensor.row<T>(token, head);
  if constexpr (std::is_same_v<T, bf16>) {
    row[d] = to_bf16(x);
  } else if constexpr (std::is_same_v<T, f16>) {
    row[d] = to_f16(x);
  } else {
    row[d] = x;
  }
}

void set(const TensorView& tensor, int64_t token, int64_t head, int64_t d, double x) {
  const auto value = static_cast<float>(x);
  switch (tensor.dtype) {
    case DType::kF32:
      return store<float>(tensor, token, head, d, value);
    case DType::kBF16:
      return store<bf16>(tensor, token, head, d, value);
    case DType::kF16:
      return store<f16>(tensor, token, head, d, value);
    case DType::kF64:
      break;
  }
  LONGSPAN_CHECK(false, "dtype {} is no input's", name_of(tensor.dtype));
}

double get(const TensorView& tensor, int64_t token, int64_t head, int64_t d) {
  switch (tensor.dtype) {
    case DType::kF32:
      return tensor.row<float>(token, head)[d];
    case DType::kBF16:
      return to_float(tensor.row<bf16>(token, head)[d]);
    case DType::kF16:
      return to_float(tensor.row<f16>(token, head)[d]);
    case DType::kF64:
      break;
  }
  LONGSPAN_CHECK(false, "dtype {} is no output's", name_of(tensor.dtype));
  return 0;
}

// Writes a tensor of the device: zero but for what write(token, head) sets in the host's view.
template <class Write>
void fill(const TensorView& tensor, DeviceKind kind, Write write) {
  Buffer buffer;
  TensorView host = tensor;
  if (kind != DeviceKind::kCpu) {
    buffer = Buffer(tensor.bytes(), cpu_device());
    host.data = buffer.data();
  }
  fill_bytes(host.data, DeviceKind::kCpu, 0, host.bytes());
  parallel_for((tensor.tokens + kChunk - 1) / kChunk, [&](int64_t chunk, int) {
    for (int64_t t = chunk * kChunk; t < std::min(tensor.tokens, (chunk + 1) * kChunk); ++t) {
      for (int64_t h = 0; h < tensor.heads; ++h) write(host, t, h);
    }
  });
  if (kind != DeviceKind::kCpu) copy_bytes(tensor.data, kind, host.data, DeviceKind::kCpu, host.bytes());
}

void fill_zero(const TensorView& tensor, DeviceKind kind) {
  fill_bytes(tensor.data, kind, 0, tensor.bytes());
}

void fill_slots(const TensorView& tensor, DeviceKind kind, int64_t block, int64_t slots) {
  fill(tensor, kind, [&](const TensorView& host, int64_t t, int64_t h) {
    set(host, t, h, slot_of(t, h, block, slots), 1);
  });
}

// The largest error of a sum of nonnegative terms of this many: relative to the sum of magnitudes, in
// roundings to the inputs' dtype and to f32; and absolute, a term.
struct Allowance {
  double relative = 0, absolute = 0;
  Allowance(const Problem& problem, double roundings, double terms) {
    relative = 1.05 * roundings * unit_roundoff(problem.dtype) +
               unit_roundoff(DType::kF32) * (16 + 0.25 * std::sqrt(terms));
    absolute = 1e-9 + (problem.dtype == DType::kF16 ? 0x1p-24 * std::max(1.0, terms) : 0);
  }
};

// lse = log n, by a kernel that rounds the sum, its logarithm and the product with log 2.
double lse_tolerance(double lse) {
  return unit_roundoff(DType::kF32) * (4 + 2 * lse);
}

std::string list_of_tokens(int64_t block) {
  return block == 1 ? "keys" : fmt::format("blocks of {} keys", block);
}

struct HostLse {
  explicit HostLse(const DeviceTensors& tensors, const Problem& problem)
      : copy(TensorView::contiguous(tensors.lse, DType::kF32, problem.heads_q, 1, problem.tokens_q),
             tensors.kind) {}
  HostCopy copy;
  const float* data() const { return static_cast<const float*>(copy.view().data); }
};

std::string check_forward(const Problem& problem, const DeviceTensors& tensors, int64_t block) {
  const int64_t slots = problem.head_dim, tokens = problem.tokens_q;
  const HostCopy o_copy(tensors.o, tensors.kind);
  const HostLse lse_copy(tensors, problem);
  const TensorView& o = o_copy.view();
  const float* lse = lse_copy.data();
  std::vector<char> change;
  for (int64_t kv_head = 0; kv_head < problem.heads_kv; ++kv_head) {
    const Mask& mask = problem.mask_of_kv_head(kv_head);
    if (kv_head == 0 || problem.masks->size() > 1) change = changes(mask);
    const SlotSums sums(
        problem.tokens_kv, slots, [&](int64_t t) { return slot_of(t, kv_head, block, slots); },
        [](int64_t) { return 1.0; });
    const std::string failure = first_failure(tokens, [&](int64_t begin, int64_t end) -> std::string {
      std::vector<double> seen(slots);
      double count = 0;
      for (int64_t row = begin; row < end; ++row) {
        if (row == begin || change[row]) {
          std::fill(seen.begin(), seen.end(), 0);
          count = 0;
          for (const Range& range : mask.visible_keys(row)) {
            sums.add(range, seen.data());
            count += static_cast<double>(range.size());
          }
        }
        const Allowance allowed(problem, 2, count);
        for (int64_t h = kv_head * problem.group_size(); h < (kv_head + 1) * problem.group_size(); ++h) {
          const double got_lse = lse[h * tokens + row];
          const double want_lse = std::log(count);
          if (count == 0 ? got_lse != want_lse : !(std::abs(got_lse - want_lse) <= lse_tolerance(want_lse))) {
            return fmt::format(
                "counting: head {}, row {} sees {} keys, but its lse with q = 0, {:.9g}, counts {:.9g}", h,
                row, count, got_lse, std::exp(got_lse));
          }
          for (int64_t s = 0; s < slots; ++s) {
            const double want = count == 0 ? 0 : seen[s] / count, got = get(o, row, h, s);
            if (count == 0 ? got != 0
                           : !(std::abs(got - want) <= allowed.relative * want + allowed.absolute)) {
              return fmt::format(
                  "counting: head {}, row {} sees {} keys, of which {} in slot {} of {}; o with q = 0 counts "
                  "{:.6g}",
                  h, row, count, seen[s], s, list_of_tokens(block), got * std::max(count, 1.0));
            }
          }
        }
      }
      return "";
    });
    if (!failure.empty()) return failure;
  }
  return "";
}

// What the forward pass gives for the backward pass's inputs, exactly.
struct RowFacts {
  std::vector<double> counts;  // [masks][rows]
  std::vector<double> means;   // [heads_kv][rows], as rounded to the dtype of o
};

RowFacts facts_of(const Problem& problem) {
  const int64_t tokens = problem.tokens_q;
  RowFacts facts;
  for (const Mask& mask : *problem.masks) {
    for (int64_t count : mask.visible_counts()) facts.counts.push_back(static_cast<double>(count));
  }
  facts.means.resize(problem.heads_kv * tokens, 0);
  for (int64_t h = 0; h < problem.heads_kv; ++h) {
    const Mask& mask = problem.mask_of_kv_head(h);
    const std::vector<char> change = changes(mask);
    const SlotSums signs(
        problem.tokens_kv, 1, [](int64_t) { return 0; }, [&](int64_t t) { return sign_of(t, h); });
    parallel_for((tokens + kChunk - 1) / kChunk, [&](int64_t chunk, int) {
      double mean = 0;
      for (int64_t row = chunk * kChunk; row < std::min(tokens, (chunk + 1) * kChunk); ++row) {
        if (row == chunk * kChunk || change[row]) {
          double sum = 0, count = 0;
          for (const Range& range : mask.visible_keys(row)) {
            signs.add(range, &sum);
            count += static_cast<double>(range.size());
          }
          float rounded = 0;
          const TensorView one = TensorView::contiguous(&rounded, DType::kF32, 1, 1, 1);
          set(one, 0, 0, 0, count == 0 ? 0 : sum / count);
          switch (problem.output_dtype()) {
            case DType::kBF16:
              mean = to_float(to_bf16(rounded));
              break;
            case DType::kF16:
              mean = to_float(to_f16(rounded));
              break;
            default:
              mean = rounded;
          }
        }
        facts.means[h * tokens + row] = mean;
      }
    });
  }
  return facts;
}

double count_of(const RowFacts& facts, const Problem& problem, int64_t kv_head, int64_t row) {
  return facts.counts[(problem.masks->size() == 1 ? 0 : kv_head) * problem.tokens_q + row];
}

// k = 0: dk and dv of every key.
std::string check_keys(const Problem& problem, const DeviceTensors& tensors, const RowFacts& facts,
                       int64_t block) {
  const int64_t slots = problem.head_dim - 1, tokens_q = problem.tokens_q, group = problem.group_size();
  const double scale = problem.softmax_scale();
  const HostCopy dk_copy(tensors.dk, tensors.kind), dv_copy(tensors.dv, tensors.kind);
  std::vector<char> change;
  Mask transposed;
  for (int64_t kv_head = 0; kv_head < problem.heads_kv; ++kv_head) {
    if (kv_head == 0 || problem.masks->size() > 1) {
      transposed = problem.mask_of_kv_head(kv_head).transposed();
      change = changes(transposed);
    }
    // By slot: the sum of 1 / n_i, and of m_i / n_i, of each query head of the group.
    std::vector<SlotSums> shares, means;
    for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
      const auto slot = [&](int64_t row) { return slot_of(row, h, block, slots); };
      const auto share = [&](int64_t row) {
        const double count = count_of(facts, problem, kv_head, row);
        return count == 0 ? 0 : 1 / count;
      };
      shares.emplace_back(tokens_q, slots, slot, share);
      means.emplace_back(tokens_q, slots, slot,
                         [&](int64_t row) { return share(row) * facts.means[kv_head * tokens_q + row]; });
    }
    const std::string failure =
        first_failure(problem.tokens_kv, [&](int64_t begin, int64_t end) -> std::string {
          std::vector<double> share(slots), mean(slots);
          double rows = 0, all = 0;
          for (int64_t key = begin; key < end; ++key) {
            if (key == begin || change[key]) {
              std::fill(share.begin(), share.end(), 0);
              std::fill(mean.begin(), mean.end(), 0);
              rows = all = 0;
              for (const Range& range : transposed.visible_keys(key)) {
                rows += static_cast<double>(range.size());
                for (int64_t g = 0; g < group; ++g) {
                  shares[g].add(range, share.data());
                  means[g].add(range, mean.data());
                }
              }
              for (double x : share) all += x;
            }
            const Allowance dk_allowed(problem, 3, rows * static_cast<double>(group));
            const Allowance dv_allowed(problem, 2, rows * static_cast<double>(group));
            const double sign = sign_of(key, kv_head);
            for (int64_t d = 0; d <= slots; ++d) {
              const double want_dv = d == 0 ? all : share[d - 1];
              const double got_dv = get(dv_copy.view(), key, kv_head, d);
              if (rows == 0 ? got_dv != 0
                            : !(std::abs(got_dv - want_dv) <=
                                dv_allowed.relative * want_dv + dv_allowed.absolute)) {
                return fmt::format(
                    "counting: KV head {}, key {} is seen by {} rows; dv with k = 0 is {:.6g} in slot {} of "
                    "{}, "
                    "should be {:.6g}",
                    kv_head, key, rows, got_dv, d, list_of_tokens(block), want_dv);
              }
              const double want_dk = d == slots ? 0 : scale * (sign * share[d] - mean[d]);
              const double got_dk = get(dk_copy.view(), key, kv_head, d);
              const double magnitude = d == slots ? 0 : std::abs(scale) * (share[d] + std::abs(mean[d]));
              if (rows == 0 ? got_dk != 0
                            : !(std::abs(got_dk - want_dk) <=
                                dk_allowed.relative * magnitude + std::abs(scale) * dk_allowed.absolute)) {
                return fmt::format(
                    "counting: KV head {}, key {} is seen by {} rows; dk with k = 0 is {:.6g} in slot {} of "
                    "{}, "
                    "should be {:.6g}",
                    kv_head, key, rows, got_dk, d, list_of_tokens(block), want_dk);
              }
            }
          }
          return "";
        });
    if (!failure.empty()) return failure;
  }
  return "";
}

// q = 0: dq of every row.
std::string check_rows(const Problem& problem, const DeviceTensors& tensors, const RowFacts& facts,
                       int64_t block) {
  const int64_t slots = problem.head_dim, tokens_q = problem.tokens_q, group = problem.group_size();
  const double scale = problem.softmax_scale();
  const HostCopy dq_copy(tensors.dq, tensors.kind);
  std::vector<char> change;
  for (int64_t kv_head = 0; kv_head < problem.heads_kv; ++kv_head) {
    const Mask& mask = problem.mask_of_kv_head(kv_head);
    if (kv_head == 0 || problem.masks->size() > 1) change = changes(mask);
    const auto slot = [&](int64_t key) { return slot_of(key, kv_head, block, slots); };
    const SlotSums keys(problem.tokens_kv, slots, slot, [](int64_t) { return 1.0; });
    const SlotSums signs(problem.tokens_kv, slots, slot, [&](int64_t key) { return sign_of(key, kv_head); });
    const std::string failure = first_failure(tokens_q, [&](int64_t begin, int64_t end) -> std::string {
      std::vector<double> seen(slots), signed_sum(slots);
      for (int64_t row = begin; row < end; ++row) {
        if (row == begin || change[row]) {
          std::fill(seen.begin(), seen.end(), 0);
          std::fill(signed_sum.begin(), signed_sum.end(), 0);
          for (const Range& range : mask.visible_keys(row)) {
            keys.add(range, seen.data());
            signs.add(range, signed_sum.data());
          }
        }
        const double count = count_of(facts, problem, kv_head, row);
        const double mean = facts.means[kv_head * tokens_q + row];
        const Allowance allowed(problem, 3, count);
        for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
          for (int64_t s = 0; s < slots; ++s) {
            const double got = get(dq_copy.view(), row, h, s);
            const double want = count == 0 ? 0 : scale * (signed_sum[s] - mean * seen[s]) / count;
            const double magnitude =
                count == 0 ? 0 : std::abs(scale) * (1 + std::abs(mean)) * seen[s] / count;
            if (count == 0 ? got != 0
                           : !(std::abs(got - want) <=
                               allowed.relative * magnitude + std::abs(scale) * allowed.absolute)) {
              return fmt::format(
                  "counting: head {}, row {} sees {} keys, of which {} in slot {} of {}; dq with q = 0 is "
                  "{:.6g} "
                  "there, should be {:.6g}",
                  h, row, count, seen[s], s, list_of_tokens(block), got, want);
            }
          }
        }
      }
      return "";
    });
    if (!failure.empty()) return failure;
  }
  return "";
}

std::string check_zero(const std::string& name, const char* operand, const TensorView& tensor,
                       DeviceKind kind) {
  const HostCopy copy(tensor, kind);
  return first_failure(tensor.tokens, [&](int64_t begin, int64_t end) -> std::string {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t h = 0; h < tensor.heads; ++h) {
        for (int64_t d = 0; d < tensor.head_dim; ++d) {
          if (get(copy.view(), t, h, d) == 0) continue;
          return fmt::format(
              "counting: {} is {:.6g} at token {}, head {}, element {}, though {} is 0 everywhere", name,
              get(copy.view(), t, h, d), t, h, d, operand);
        }
      }
    }
    return "";
  });
}

}  // namespace

std::string counting_forward(Plan& plan, const Problem& problem, ProblemTensors& tensors) {
  const DeviceTensors& views = tensors.views();
  for (const int64_t block : kSlotBlocks) {
    tensors.fill_inputs(1);  // k: whatever it is, q = 0 makes every score 0
    fill_zero(views.q, views.kind);
    fill_slots(views.v, views.kind, block, problem.head_dim);
    tensors.poison(Direction::kForward);
    tensors.forward(plan);
    std::string failure = check_forward(problem, views, block);
    if (!failure.empty()) return failure;
  }
  return "";
}

std::string counting_backward(Plan& plan, const Problem& problem, ProblemTensors& tensors) {
  LONGSPAN_CHECK(problem.head_dim >= 2, "head_dim is {}; the counting oracle of the backward pass needs 2",
                 problem.head_dim);
  const DeviceTensors& views = tensors.views();
  const RowFacts facts = facts_of(problem);
  const int64_t tokens_q = problem.tokens_q;

  fill(views.v, views.kind,
       [&](const TensorView& host, int64_t t, int64_t h) { set(host, t, h, 0, sign_of(t, h)); });
  fill(views.o, views.kind, [&](const TensorView& host, int64_t t, int64_t h) {
    set(host, t, h, 0, facts.means[problem.kv_head_of(h) * tokens_q + t]);
  });
  const auto lse = TensorView::contiguous(views.lse, DType::kF32, tokens_q, 1, problem.heads_q);
  std::vector<float> host_lse(problem.heads_q * tokens_q);
  for (int64_t h = 0; h < problem.heads_q; ++h) {
    for (int64_t t = 0; t < tokens_q; ++t) {
      host_lse[h * tokens_q + t] =
          static_cast<float>(std::log(count_of(facts, problem, problem.kv_head_of(h), t)));
    }
  }
  copy_bytes(lse.data, views.kind, host_lse.data(), DeviceKind::kCpu, host_lse.size() * sizeof(float));

  for (const int64_t block : kSlotBlocks) {
    fill(views.dout, views.kind, [&](const TensorView& host, int64_t t, int64_t h) {
      set(host, t, h, 0, 1);
      set(host, t, h, 1 + slot_of(t, h, block, problem.head_dim - 1), 1);
    });
    fill_slots(views.q, views.kind, block, problem.head_dim - 1);
    fill_zero(views.k, views.kind);
    tensors.poison(Direction::kBackward);
    tensors.backward(plan);
    std::string failure = check_zero("dq", "k", views.dq, views.kind);
    if (failure.empty()) failure = check_keys(problem, views, facts, block);
    if (!failure.empty()) return failure;

    fill_zero(views.q, views.kind);
    fill_slots(views.k, views.kind, block, problem.head_dim);
    tensors.poison(Direction::kBackward);
    tensors.backward(plan);
    failure = check_zero("dk", "q", views.dk, views.kind);
    if (failure.empty()) failure = check_rows(problem, views, facts, block);
    if (!failure.empty()) return failure;
  }
  return "";
}

}  // namespace longspan
