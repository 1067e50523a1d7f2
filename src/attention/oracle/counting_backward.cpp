// The counting oracle of the backward pass.
#include <cmath>
#include <optional>

#include "attention/element.h"
#include "attention/oracle/counting_oracle.h"
#include "attention/oracle/counting_tensors.h"
#include "attention/oracle/slot_sums.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/host_scratch.h"

namespace longspan {
namespace {

// Roundings to the inputs' dtype: of P and dv; of m, dS, and dq or dk.
constexpr double kValueRoundings = 2, kScoreRoundings = 3;

// Slots of rows: q holds them, and dout behind an element of its own.
int64_t row_slots(const Problem& problem) {
  return std::min(problem.head_dim, problem.dim_v()) - 1;
}

// Roundings of each query head's share of dk and dv, for kernels that add up a group's shares afterwards.
double group_roundings(const Problem& problem) {
  return problem.group_size() > 1 ? 1 : 0;
}

// The exact forward results that the backward inputs imply.
class RowFacts {
 public:
  explicit RowFacts(const Problem& problem) : problem_(problem) {
    for (const Mask& mask : *problem.masks) counts_.push_back(mask.visible_counts());
    for (int64_t h = 0; h < problem.heads_kv; ++h) means_.push_back(means_of(h));
  }

  // The number of the row's keys, n.
  double count(int64_t kv_head, int64_t row) const {
    return static_cast<double>(counts_[counts_.size() == 1 ? 0 : kv_head][row]);
  }
  double share(int64_t kv_head, int64_t row) const {
    const double n = count(kv_head, row);
    return n == 0 ? 0 : 1 / n;
  }
  // The mean sign of the row's keys, m, rounded as o holds it.
  double mean(int64_t kv_head, int64_t row) const { return means_[kv_head][row]; }

 private:
  std::vector<double> means_of(int64_t kv_head) const {
    const Mask& mask = problem_.mask_of_kv_head(kv_head);
    const std::vector<char> change = changes(mask);
    const SlotSums signs(
        problem_.tokens_kv, kSlotKinds, [](int64_t, int kind) { return kind; },
        [&](int64_t key) { return sign_of(key, kv_head); });
    std::vector<double> means(problem_.tokens_q);
    parallel_for((problem_.tokens_q + kCheckedTokens - 1) / kCheckedTokens, [&](int64_t chunk, int) {
      const int64_t begin = chunk * kCheckedTokens, end = std::min(problem_.tokens_q, begin + kCheckedTokens);
      double mean = 0;
      for (int64_t row = begin; row < end; ++row) {
        if (row == begin || change[row]) {
          double sum[kSlotKinds] = {};
          for (const Range& range : mask.visible_keys(row)) signs.add(range, sum);
          mean = rounded_to(problem_.output_dtype(), sum[0] * share(kv_head, row));
        }
        means[row] = mean;
      }
    });
    return means;
  }

  const Problem& problem_;
  std::vector<std::vector<int64_t>> counts_;  // [masks][rows]
  std::vector<std::vector<double>> means_;    // [heads_kv][rows]
};

// Sums over the rows that see a key, over all query heads of its group, by the rows' slots.
struct KeySums {
  double rows = 0;
  std::vector<double> count, share, mean;  // sums of 1, 1 / n, m / n

  std::vector<double> got_dk, got_dv;  // scratch: rows of the key

  KeySums(int64_t slots, const Problem& problem)
      : count(slots), share(slots), mean(slots), got_dk(problem.head_dim), got_dv(problem.dim_v()) {}
  void clear() {
    rows = 0;
    for (auto* sums : {&count, &share, &mean}) std::fill(sums->begin(), sums->end(), 0);
  }
};

std::string check_key(const Problem& problem, const TensorView& dk, const TensorView& dv, int64_t kv_head,
                      int64_t key, KeySums& sums) {
  const auto slots = static_cast<int64_t>(sums.share.size());
  const double scale = problem.softmax_scale(), sign = sign_of(key, kv_head);
  const auto wrong = [&](const char* tensor, int64_t element, double got, double want) {
    return fmt::format(
        "counting: KV head {}, key {} is seen by {} rows; {} with k = 0 is {:.9g} at element {}, should be "
        "{:.9g}",
        kv_head, key, sums.rows, tensor, got, element, want);
  };
  load_row(dk, key, kv_head, sums.got_dk.data());
  load_row(dv, key, kv_head, sums.got_dv.data());
  double all = 0, all_count = 0;
  for (int64_t s = 0; s < slots; ++s) {
    all += sums.share[s] / kSlotKinds;
    all_count += sums.count[s] / kSlotKinds;
  }
  for (int64_t d = 0; d < problem.dim_v(); ++d) {
    const bool counts = d > 0 && d <= slots;
    const double want_dv = d == 0 ? all : (counts ? sums.share[d - 1] : 0), got_dv = sums.got_dv[d];
    const double dv_terms = d == 0 ? all_count : (counts ? sums.count[d - 1] : 0);
    if (sums.rows == 0 ? got_dv != 0
                       : !Allowance(problem.dtype, kValueRoundings + group_roundings(problem), dv_terms)
                              .allows(got_dv, want_dv, want_dv)) {
      return wrong("dv", d, got_dv, want_dv);
    }
  }
  for (int64_t d = 0; d < problem.head_dim; ++d) {
    const bool counts = d < slots;
    const double share = counts ? sums.share[d] : 0, mean = counts ? sums.mean[d] : 0;
    const double want_dk = scale * (sign * share - mean), got_dk = sums.got_dk[d];
    const Allowance allowed(problem.dtype, kScoreRoundings + group_roundings(problem),
                            counts ? sums.count[d] : 0, scale);
    if (sums.rows == 0 ? got_dk != 0
                       : !allowed.allows(got_dk / scale, want_dk / scale, share + std::abs(mean))) {
      return wrong("dk", d, got_dk, want_dk);
    }
  }
  return "";
}

// With k = 0: checks dk and dv of every key.
std::string check_keys(const Problem& problem, const DeviceTensors& tensors, const RowFacts& facts) {
  const int64_t slots = row_slots(problem), tokens_q = problem.tokens_q, group = problem.group_size();
  const HostCopy dk(tensors.dk, tensors.kind), dv(tensors.dv, tensors.kind);
  std::vector<char> change;
  Mask transposed;
  for (int64_t kv_head = 0; kv_head < problem.heads_kv; ++kv_head) {
    if (kv_head == 0 || problem.masks->size() > 1) {
      transposed = problem.mask_of_kv_head(kv_head).transposed();
      change = changes(transposed);
    }
    // [query heads of the group]
    std::vector<std::optional<SlotSums>> counts(group), shares(group), means(group);
    parallel_for(3 * group, [&](int64_t i, int) {
      const int64_t g = i / 3, h = kv_head * group + g;
      const auto slot = [&](int64_t row, int kind) { return slot_of(row, h, kind, slots); };
      const auto share = [&](int64_t row) { return facts.share(kv_head, row); };
      const auto mean = [&](int64_t row) { return share(row) * facts.mean(kv_head, row); };
      if (i % 3 == 0) counts[g].emplace(tokens_q, slots, slot, [](int64_t) { return 1.0; });
      if (i % 3 == 1) shares[g].emplace(tokens_q, slots, slot, share);
      if (i % 3 == 2) means[g].emplace(tokens_q, slots, slot, mean);
    });
    std::string failure = first_failure(problem.tokens_kv, [&](int64_t begin, int64_t end) -> std::string {
      KeySums sums(slots, problem);
      for (int64_t key = begin; key < end; ++key) {
        if (key == begin || change[key]) {
          sums.clear();
          for (const Range& range : transposed.visible_keys(key)) {
            sums.rows += static_cast<double>(range.size());
            for (int64_t g = 0; g < group; ++g) {
              counts[g]->add(range, sums.count.data());
              shares[g]->add(range, sums.share.data());
              means[g]->add(range, sums.mean.data());
            }
          }
        }
        std::string wrong = check_key(problem, dk.view(), dv.view(), kv_head, key, sums);
        if (!wrong.empty()) return wrong;
      }
      return "";
    });
    if (!failure.empty()) return failure;
  }
  return "";
}

// Sums over the keys that a row sees, by the keys' slots: of 1, and of the keys' signs.
struct RowSums {
  std::vector<double> count, sign;
  std::vector<double> got;  // scratch: row of dq
};

std::string check_row(const Problem& problem, const TensorView& dq, const RowFacts& facts, int64_t head,
                      int64_t row, RowSums& sums) {
  const int64_t kv_head = problem.kv_head_of(head);
  const double scale = problem.softmax_scale();
  const double share = facts.share(kv_head, row), mean = facts.mean(kv_head, row);
  load_row(dq, row, head, sums.got.data());
  for (int64_t s = 0; s < problem.head_dim; ++s) {
    const double got = sums.got[s];
    const double want = scale * share * (sums.sign[s] - mean * sums.count[s]);
    const double magnitude = share * (1 + std::abs(mean)) * sums.count[s];
    if (share == 0 ? got == 0
                   : Allowance(problem.dtype, kScoreRoundings, sums.count[s], scale)
                         .allows(got / scale, want / scale, magnitude)) {
      continue;
    }
    return fmt::format(
        "counting: head {}, row {} sees {} keys, {} of them in {}; dq with q = 0 is {:.9g} there, "
        "should be {:.9g}",
        head, row, facts.count(kv_head, row), sums.count[s], slot_in_words(s, problem.head_dim, "keys"), got,
        want);
  }
  return "";
}

// With q = 0: checks dq of every row.
std::string check_rows(const Problem& problem, const DeviceTensors& tensors, const RowFacts& facts) {
  const int64_t slots = problem.head_dim, group = problem.group_size();
  const HostCopy dq(tensors.dq, tensors.kind);
  std::vector<char> change;
  for (int64_t kv_head = 0; kv_head < problem.heads_kv; ++kv_head) {
    const Mask& mask = problem.mask_of_kv_head(kv_head);
    if (kv_head == 0 || problem.masks->size() > 1) change = changes(mask);
    const auto slot = [&](int64_t key, int kind) { return slot_of(key, kv_head, kind, slots); };
    const SlotSums counts(problem.tokens_kv, slots, slot, [](int64_t) { return 1.0; });
    const SlotSums signs(problem.tokens_kv, slots, slot, [&](int64_t key) { return sign_of(key, kv_head); });
    std::string failure = first_failure(problem.tokens_q, [&](int64_t begin, int64_t end) -> std::string {
      RowSums sums;
      sums.got.resize(slots);
      for (int64_t row = begin; row < end; ++row) {
        if (row == begin || change[row]) {
          sums.count.assign(slots, 0);
          sums.sign.assign(slots, 0);
          for (const Range& range : mask.visible_keys(row)) {
            counts.add(range, sums.count.data());
            signs.add(range, sums.sign.data());
          }
        }
        for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
          std::string wrong = check_row(problem, dq.view(), facts, h, row, sums);
          if (!wrong.empty()) return wrong;
        }
      }
      return "";
    });
    if (!failure.empty()) return failure;
  }
  return "";
}

// Checks that dq is 0 where k = 0, and dk where q = 0.
std::string check_zero(const char* name, const char* operand, const TensorView& tensor, DeviceKind kind) {
  const std::optional<FoundElement> x = first_nonzero(tensor, kind);
  if (!x) return "";
  return fmt::format("counting: {} is {:.9g} at token {}, head {}, element {}, though {} is 0 everywhere",
                     name, x->value, x->token, x->head, x->d, operand);
}

// Sets o and lse of every row to the exact forward results, and fills v.
void write_forward_results(const Problem& problem, const RowFacts& facts, const DeviceTensors& views) {
  write_first_elements(views.v, views.kind,
                       [&](int64_t key, int64_t kv_head) { return sign_of(key, kv_head); });
  write_first_elements(views.o, views.kind,
                       [&](int64_t row, int64_t head) { return facts.mean(problem.kv_head_of(head), row); });
  const int64_t tokens = problem.tokens_q;
  const HostScratch memory(static_cast<size_t>(problem.heads_q * tokens) * sizeof(float));
  auto* const lse = static_cast<float*>(memory.data());  // [heads_q, tokens_q]
  parallel_for(problem.heads_kv, [&](int64_t kv_head, int) {
    const int64_t group = problem.group_size();
    float* const first = lse + kv_head * group * tokens;
    for (int64_t row = 0; row < tokens; ++row)
      first[row] = static_cast<float>(std::log(facts.count(kv_head, row)));
    for (int64_t g = 1; g < group; ++g) std::copy(first, first + tokens, first + g * tokens);
  });
  copy_bytes(views.lse, views.kind, lse, DeviceKind::kCpu,
             static_cast<size_t>(problem.heads_q * tokens) * sizeof(float));
}

}  // namespace

bool countable(const Problem& problem) {
  return std::min(problem.head_dim, problem.dim_v()) > kSlotKinds && problem.alibi_slopes.empty() &&
         problem.sinks.empty();
}

void check_countable(const Problem& problem) {
  LONGSPAN_CHECK(
      countable(problem),
      "head_dim {} and {}, {} slopes of ALiBi, {} sinks: counting needs more than {} each, none, none",
      problem.head_dim, problem.dim_v(), problem.alibi_slopes.size(), problem.sinks.size(), kSlotKinds);
}

std::string counting_backward(Plan& plan, const Problem& problem, ProblemTensors& tensors) {
  check_countable(problem);
  const DeviceTensors& views = tensors.views();
  const int64_t slots = row_slots(problem);
  const RowFacts facts(problem);
  write_forward_results(problem, facts, views);
  write_slots(views.dout, views.kind, 1, slots);
  if (views.dlse != nullptr)
    fill_bytes(views.dlse, views.kind, 0,
               static_cast<size_t>(problem.heads_q * problem.tokens_q) * sizeof(float));

  write_slots(views.q, views.kind, 0, slots);
  write_zero(views.k, views.kind);
  tensors.poison(Direction::kBackward);
  tensors.backward(plan);
  std::string failure = check_zero("dq", "k", views.dq, views.kind);
  if (failure.empty()) failure = check_keys(problem, views, facts);
  if (!failure.empty()) return failure;

  write_zero(views.q, views.kind);
  write_slots(views.k, views.kind, 0, problem.head_dim);
  tensors.poison(Direction::kBackward);
  tensors.backward(plan);
  failure = check_zero("dk", "q", views.dk, views.kind);
  return failure.empty() ? check_rows(problem, views, facts) : failure;
}

}  // namespace longspan
