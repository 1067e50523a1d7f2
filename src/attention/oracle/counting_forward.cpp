// The counting oracle of the forward pass.
#include <cmath>

#include "attention/element.h"
#include "attention/oracle/counting_oracle.h"
#include "attention/oracle/counting_tensors.h"
#include "attention/oracle/slot_sums.h"
#include "base/error.h"

namespace longspan {
namespace {

// lse = log n. The kernel rounds the sum, its logarithm (a fast GPU log errs by up to 3 ulp, or 6 roundings)
// and the product with log 2.
double lse_tolerance(double lse) {
  return unit_roundoff(DType::kF32) * (4 + 8 * lse);
}

struct Row {
  int64_t head, row;
  double count;                 // number of visible keys
  const double* slots;          // number of them in each slot
  std::vector<double>& values;  // scratch for the row of o
};

std::string check_row(const Problem& problem, const TensorView& o, double lse, const Row& row) {
  const double want_lse = std::log(row.count);
  if (row.count == 0 ? lse != want_lse : !(std::abs(lse - want_lse) <= lse_tolerance(want_lse))) {
    return fmt::format(
        "counting: head {}, row {} sees {} keys, but its lse with q = 0, {:.9g}, counts {:.9g}", row.head,
        row.row, row.count, lse, std::exp(lse));
  }
  std::vector<double>& values = row.values;
  load_row(o, row.row, row.head, values.data());
  for (int64_t s = 0; s < problem.dim_v(); ++s) {
    const double got = values[s];
    const double want = row.count == 0 ? 0 : row.slots[s] / row.count;
    if (row.count == 0 ? got == 0 : Allowance(problem.dtype, 2, row.slots[s]).allows(got, want, want))
      continue;
    return fmt::format("counting: head {}, row {} sees {} keys, {} of them in {}; o with q = 0 counts {:.9g}",
                       row.head, row.row, row.count, row.slots[s], slot_in_words(s, problem.dim_v(), "keys"),
                       got * std::max(row.count, 1.0));
  }
  return "";
}

std::string check_forward(const Problem& problem, const DeviceTensors& tensors) {
  const HostCopy o(tensors.o, tensors.kind);
  const HostCopy lse(TensorView::contiguous(tensors.lse, DType::kF32, problem.heads_q, 1, problem.tokens_q),
                     tensors.kind);
  const int64_t slots = problem.dim_v(), group = problem.group_size();
  std::vector<char> change;
  for (int64_t kv_head = 0; kv_head < problem.heads_kv; ++kv_head) {
    const Mask& mask = problem.mask_of_kv_head(kv_head);
    if (kv_head == 0 || problem.masks->size() > 1) change = changes(mask);
    const SlotSums keys(
        problem.tokens_kv, slots, [&](int64_t key, int kind) { return slot_of(key, kv_head, kind, slots); },
        [](int64_t) { return 1.0; });
    std::string failure = first_failure(problem.tokens_q, [&](int64_t begin, int64_t end) -> std::string {
      std::vector<double> seen(slots), values(slots);
      double count = 0;
      for (int64_t row = begin; row < end; ++row) {
        if (row == begin || change[row]) {
          std::fill(seen.begin(), seen.end(), 0);
          count = 0;
          for (const Range& range : mask.visible_keys(row)) {
            keys.add(range, seen.data());
            count += static_cast<double>(range.size());
          }
        }
        for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
          std::string wrong = check_row(problem, o.view(), lse.view().row<float>(h, 0)[row],
                                        {h, row, count, seen.data(), values});
          if (!wrong.empty()) return wrong;
        }
      }
      return "";
    });
    if (!failure.empty()) return failure;
  }
  return "";
}

}  // namespace

std::string counting_forward(Plan& plan, const Problem& problem, ProblemTensors& tensors) {
  const DeviceTensors& views = tensors.views();
  check_countable(problem);
  tensors.fill_inputs(1);  // k may be anything: q = 0 makes every score 0
  write_zero(views.q, views.kind);
  write_slots(views.v, views.kind, 0, problem.dim_v());
  tensors.poison(Direction::kForward);
  tensors.forward(plan);
  return check_forward(problem, views);
}

}  // namespace longspan
