#include "attention/oracle/accuracy.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <mutex>

#include "attention/element.h"
#include "base/error.h"
#include "base/parallel.h"

namespace longspan {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Allowed roundings of a row to the inputs' dtype, in units of its roundoff: of the output, and of the
// weights (P, dS) that multiply v, k, q or dout.
constexpr double kForwardRoundings = 1, kBackwardRoundings = 1.25;
// Allowed roundings of every row to f32, in units of its roundoff: of scores, exponentials and the
// normalisation; and, per square root of the number of terms, of the sums.
constexpr double kF32Roundings = 32, kF32PerRootTerm = 0.25;
// Roundings to f32 of dp and delta, whose difference gives ds.
constexpr double kCancelledRoundings = 4;

double f32_tolerance(double terms) {
  return unit_roundoff(DType::kF32) * (kF32Roundings + kF32PerRootTerm * std::sqrt(terms));
}

// An error that does not shrink with the value. f16: half the spacing of subnormal numbers. bf16 and f32: a
// weight p below 2^-126 is flushed to zero, and ds = p (dp - delta) with it; abs(dp - delta) is below 2^26.
double smallest_rounding(DType dtype) {
  return dtype == DType::kF16 ? 0x1p-25 : 0x1p-100;
}

// NaN without a sign, which some platforms print.
double shown(double x) {
  return std::isnan(x) ? std::numeric_limits<double>::quiet_NaN() : x;
}

const char* row_word(const std::string& tensor) {
  return tensor == "dk" || tensor == "dv" ? "key" : "row";
}
const char* head_word(const std::string& tensor) {
  return tensor == "dk" || tensor == "dv" ? "KV head" : "head";
}

// Keeps the row with the largest ratio of error to tolerance.
class Worst {
 public:
  explicit Worst(TensorAccuracy& result) : result_(result) {}
  // Returns true if this row is the worst so far.
  bool offer(double error, double tolerance) {
    if (std::isnan(error)) error = kInfinity;
    const double share = error / tolerance;
    if (share <= share_) return false;
    share_ = share;
    result_.error = error;
    result_.tolerance = tolerance;
    return true;
  }
  bool failed() const { return !(share_ <= 1); }

 private:
  TensorAccuracy& result_;
  double share_ = -1;
};

// Describes the first bad element, in token order; chunks of tokens run in parallel.
template <class Describe>  // describe(token) returns "" or what is wrong
std::string first_wrong(int64_t tokens, Describe describe) {
  constexpr int64_t kTokens = 256;
  std::mutex mutex;
  int64_t first = std::numeric_limits<int64_t>::max();
  std::string text;
  parallel_for((tokens + kTokens - 1) / kTokens, [&](int64_t chunk, int) {
    for (int64_t t = chunk * kTokens; t < std::min(tokens, (chunk + 1) * kTokens); ++t) {
      std::string found = describe(t);
      if (found.empty()) continue;
      std::scoped_lock lock(mutex);
      if (t < first) {
        first = t;
        text = std::move(found);
      }
      return;
    }
  });
  return text;
}

int64_t count_of(const HeadCounts& counts, int64_t head, int64_t heads, int64_t token) {
  const auto masks = static_cast<int64_t>(counts.size());
  return counts[head / (heads / masks)][token];
}

template <class T>
bool finite(T x) {
  if constexpr (std::is_same_v<T, bf16>) {
    return (x.bits & 0x7f80) != 0x7f80;
  } else if constexpr (std::is_same_v<T, f16>) {
    return (x.bits & 0x7c00) != 0x7c00;
  } else {
    return std::isfinite(x);
  }
}

template <class T>
bool zero(T x) {
  if constexpr (std::is_floating_point_v<T>) {
    return x == 0;
  } else {
    return (x.bits & 0x7fff) == 0;
  }
}

template <class T>
std::string check_elements_of(const std::string& tensor, const TensorView& actual, const HeadCounts& counts) {
  return first_wrong(actual.tokens, [&](int64_t t) -> std::string {
    for (int64_t h = 0; h < actual.heads; ++h) {
      const T* row = actual.row<T>(t, h);
      const bool empty = count_of(counts, h, actual.heads, t) == 0;
      bool right = true;
      for (int64_t d = 0; d < actual.head_dim; ++d) right &= finite(row[d]) && (!empty || zero(row[d]));
      if (right) continue;
      int64_t d = 0;
      while (finite(row[d]) && (!empty || zero(row[d]))) ++d;
      const std::string place =
          fmt::format("{} {}, {} {}, element {}", head_word(tensor), h, row_word(tensor), t, d);
      if (!finite(row[d])) {
        return fmt::format("{}: {} is {}", tensor, place, shown(get_element(actual, t, h, d)));
      }
      return fmt::format("{}: {} is {}, though the {} {} and must give 0", tensor, place,
                         shown(get_element(actual, t, h, d)), row_word(tensor),
                         row_word(tensor) == std::string("key") ? "is seen by no row" : "sees no key");
    }
    return "";
  });
}

}  // namespace

double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 0x1p-24;
    case DType::kBF16:
      return 0x1p-8;
    case DType::kF16:
      return 0x1p-11;
    case DType::kF64:
      return 0x1p-53;
  }
  LONGSPAN_CHECK(false, "dtype {} is unknown", static_cast<int>(dtype));
  return 0;
}

TensorAccuracy compare_rows(const Problem& problem, const std::string& tensor, const TensorView& actual,
                            const ReferenceRows& reference, const std::vector<std::vector<int64_t>>& places) {
  const int64_t dim = actual.head_dim;
  const double roundoff = unit_roundoff(problem.dtype), f32 = unit_roundoff(DType::kF32);
  const double cancelled = std::min(1.0, kCancelledRoundings * f32 / roundoff);
  const double smallest = smallest_rounding(problem.dtype) / roundoff;
  const double roundings = tensor == "o" ? kForwardRoundings : kBackwardRoundings;
  TensorAccuracy result;
  result.tensor = tensor;
  Worst worst(result);
  double squared_errors = 0, squared_values = 0;
  std::string description;
  int64_t place = 0;
  for (int64_t h = 0; h < static_cast<int64_t>(places.size()); ++h) {
    for (const int64_t token : places[h]) {
      const double* want = &reference.values[place * dim];
      double squared_error = 0, squared_value = 0;
      int64_t worst_d = 0;
      double worst_difference = -1;
      for (int64_t d = 0; d < dim; ++d) {
        const double difference = get_element(actual, token, h, d) - want[d];
        squared_error += difference * difference;
        squared_value += want[d] * want[d];
        if (!(std::abs(difference) <= worst_difference)) {
          worst_difference = std::isnan(difference) ? kInfinity : std::abs(difference);
          worst_d = d;
        }
      }
      const double magnitude = std::sqrt(squared_value) + reference.spread[place] +
                               cancelled * reference.cancelled[place] + reference.scores[place] / roundoff +
                               smallest * (reference.operands[place] + std::sqrt(static_cast<double>(dim)));
      // A row that must be 0 has no magnitude, so any error in it is infinite.
      const double error = squared_error == 0 ? 0 : std::sqrt(squared_error) / magnitude;
      if (worst.offer(error, roundings * roundoff + f32_tolerance(reference.terms[place]))) {
        description = fmt::format("{} {}, {} {}, element {}: {:.6g}, should be {:.6g}", head_word(tensor), h,
                                  row_word(tensor), token, worst_d,
                                  shown(get_element(actual, token, h, worst_d)), want[worst_d]);
      }
      squared_errors += squared_error;
      squared_values += squared_value;
      ++place;
    }
  }
  result.rows = place;
  result.relative = squared_errors == 0 ? 0 : std::sqrt(squared_errors / squared_values);
  if (std::isnan(result.relative)) result.relative = kInfinity;
  if (worst.failed() && place > 0) {
    result.failure = fmt::format("{}: error {:.3g} exceeds {:.3g} at {}", tensor, result.error,
                                 result.tolerance, description);
  }
  return result;
}

TensorAccuracy compare_lse(const Problem& problem, const float* actual, const ForwardReference& reference,
                           const std::vector<std::vector<int64_t>>& rows, int64_t drift_keys) {
  const double f32 = unit_roundoff(DType::kF32);
  TensorAccuracy result;
  result.tensor = "lse";
  Worst worst(result);
  double squared_errors = 0, squared_values = 0;
  std::string description;
  int64_t place = 0;
  for (int64_t h = 0; h < static_cast<int64_t>(rows.size()); ++h) {
    for (const int64_t row : rows[h]) {
      const double want = reference.lse[place], got = actual[h * problem.tokens_q + row];
      const bool empty = want == -kInfinity;
      const double error = empty ? (got == want ? 0 : kInfinity) : std::abs(got - want);
      const double terms = reference.o.terms[place], largest = std::abs(reference.largest[place]);
      const double drifts = drift_keys == 0 ? 0 : std::ceil(terms / static_cast<double>(drift_keys));
      const double tolerance = empty ? f32
                                     : f32_tolerance(terms) +
                                           f32 * (2 * std::abs(want) + (2 + drifts) * largest) +
                                           reference.lse_scores[place];
      if (worst.offer(error, tolerance)) {
        description = fmt::format("head {}, row {}: {:.9g}, should be {:.9g}", h, row, shown(got), want);
      }
      if (!empty) {
        squared_errors += error * error;
        squared_values += want * want;
      }
      ++place;
    }
  }
  result.rows = place;
  result.relative = squared_errors == 0 ? 0 : std::sqrt(squared_errors / squared_values);
  if (std::isnan(result.relative)) result.relative = kInfinity;
  if (worst.failed() && place > 0) {
    result.failure =
        fmt::format("lse: error {:.3g} exceeds {:.3g} at {}", result.error, result.tolerance, description);
  }
  return result;
}

std::string check_elements(const std::string& tensor, const TensorView& actual, const HeadCounts& counts) {
  return with_element_type(
      actual.dtype, [&](auto type) { return check_elements_of<decltype(type)>(tensor, actual, counts); });
}

std::string check_lse_elements(const float* actual, int64_t heads, int64_t tokens, const HeadCounts& counts,
                               bool sinks) {
  return first_wrong(tokens, [&](int64_t t) -> std::string {
    for (int64_t h = 0; h < heads; ++h) {
      const float lse = actual[h * tokens + t];
      if (!sinks && count_of(counts, h, heads, t) == 0) {
        if (lse != -std::numeric_limits<float>::infinity()) {
          return fmt::format("lse: head {}, row {} is {}, though the row sees no key and must give -inf", h,
                             t, shown(lse));
        }
      } else if (!std::isfinite(lse)) {
        return fmt::format("lse: head {}, row {} is {}", h, t, shown(lse));
      }
    }
    return "";
  });
}

}  // namespace longspan
