#include "kernels/cpu/naive.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <cblas.h>

#include "attention/blas.h"
#include "attention/score.h"
#include "attention/sinks.h"
#include "base/error.h"
#include "base/parallel.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/panel.h"

namespace longspan {

namespace {

constexpr int64_t kStripe = 64;  // rows or columns of the matrix per thread and step

// A row-major f32 matrix, or a part of one.
struct Matrix {
  float* data = nullptr;
  int64_t rows = 0, columns = 0, stride = 0;

  float* row(int64_t i) const { return data + i * stride; }
  Matrix rows_from(int64_t i) const { return {row(i), std::min(kStripe, rows - i), columns, stride}; }
  Matrix columns_from(int64_t j) const { return {data + j, rows, std::min(kStripe, columns - j), stride}; }
};

// c = alpha * a * b, optionally with a or b transposed, and optionally added to c.
enum class Form { kPlain, kLeftTransposed, kRightTransposed };
void multiply(float alpha, const Matrix& a, const Matrix& b, Form form, const Matrix& c, bool add = false) {
  const bool left = form == Form::kLeftTransposed, right = form == Form::kRightTransposed;
  cblas_sgemm(CblasRowMajor, left ? CblasTrans : CblasNoTrans, right ? CblasTrans : CblasNoTrans,
              static_cast<blasint>(c.rows), static_cast<blasint>(c.columns),
              static_cast<blasint>(left ? a.rows : a.columns), alpha, a.data, static_cast<blasint>(a.stride),
              b.data, static_cast<blasint>(b.stride), add ? 1.0f : 0.0f, c.data,
              static_cast<blasint>(c.stride));
}

void for_each_stripe(int64_t count, const std::function<void(int64_t first)>& body) {
  parallel_for((count + kStripe - 1) / kStripe, [&](int64_t index, int) { body(index * kStripe); });
}

// Processes one head at a time; all threads work on stripes of its matrices.
class NaivePlan final : public Plan {
 public:
  explicit NaivePlan(const Problem& problem) : problem_(problem), scale_(problem.softmax_scale()) {}

  static size_t score_bytes(const Problem& problem, Direction direction) {
    const size_t matrices = direction == Direction::kForward ? 1 : 2;
    return matrices * static_cast<size_t>(problem.tokens_q) * static_cast<size_t>(problem.tokens_kv) *
           sizeof(float);
  }

  size_t workspace_bytes(Direction direction) const override {
    // Forward q, k, v, o; backward their gradients as well.
    const int64_t rows = problem_.tokens_q * (problem_.head_dim + problem_.dim_v());
    const int64_t keys = problem_.tokens_kv * (problem_.head_dim + problem_.dim_v());
    const size_t bytes = static_cast<size_t>(rows + keys) * sizeof(float);
    return score_bytes(problem_, direction) + (direction == Direction::kForward ? bytes : 2 * bytes);
  }
  size_t plan_bytes() const override { return sizeof(*this); }

  void forward(const ForwardArgs& args, Stream) override {
    prepare_blas();
    float* memory = static_cast<float*>(args.workspace);
    const Matrix p = take(memory, problem_.tokens_q, problem_.tokens_kv);
    const Matrix q = take(memory, problem_.tokens_q, problem_.head_dim);
    const Matrix o = take(memory, problem_.tokens_q, problem_.dim_v());
    const Matrix k = take(memory, problem_.tokens_kv, problem_.head_dim);
    const Matrix v = take(memory, problem_.tokens_kv, problem_.dim_v());
    for (int64_t head = 0; head < problem_.heads_q; ++head) {
      const int64_t kv_head = problem_.kv_head_of(head);
      const Mask& mask = problem_.mask_of_kv_head(kv_head);
      load(args.q, head, q);
      load(args.k, kv_head, k);
      load(args.v, kv_head, v);
      float* lse = args.lse + head * problem_.tokens_q;
      const auto rule = ScoreRule<float>::of(problem_, head);
      for_each_stripe(problem_.tokens_q, [&](int64_t first) {
        const Matrix scores = p.rows_from(first);
        multiply(scale_, q.rows_from(first), k, Form::kRightTransposed, scores);
        for (int64_t i = 0; i < scores.rows; ++i) {
          const std::vector<Range> visible = mask.visible_keys(first + i);
          mend_overflow(visible, q.row(first + i), k, scores.row(i));
          apply(rule, visible, first + i, scores.row(i));
          lse[first + i] = softmax(visible, scores.row(i), scores.columns);
        }
        multiply(1.0f, scores, v, Form::kPlain, o.rows_from(first));
      });
      store(o, args.o, head);
    }
    finish_sinks(args, cpu_device(), Stream{});
  }

  void backward(const BackwardArgs& args, Stream) override {
    prepare_blas();
    float* memory = static_cast<float*>(args.workspace);
    const Matrix p = take(memory, problem_.tokens_q, problem_.tokens_kv);
    const Matrix ds = take(memory, problem_.tokens_q, problem_.tokens_kv);
    const Matrix q = take(memory, problem_.tokens_q, problem_.head_dim);
    const Matrix o = take(memory, problem_.tokens_q, problem_.dim_v());
    const Matrix dout = take(memory, problem_.tokens_q, problem_.dim_v());
    const Matrix dq = take(memory, problem_.tokens_q, problem_.head_dim);
    const Matrix k = take(memory, problem_.tokens_kv, problem_.head_dim);
    const Matrix v = take(memory, problem_.tokens_kv, problem_.dim_v());
    const Matrix dk = take(memory, problem_.tokens_kv, problem_.head_dim);
    const Matrix dv = take(memory, problem_.tokens_kv, problem_.dim_v());
    for (int64_t head = 0; head < problem_.heads_q; ++head) {
      const int64_t kv_head = problem_.kv_head_of(head);
      const Mask& mask = problem_.mask_of_kv_head(kv_head);
      load(args.q, head, q);
      load(args.o, head, o);
      load(args.dout, head, dout);
      load(args.k, kv_head, k);
      load(args.v, kv_head, v);
      const float* lse = args.lse + head * problem_.tokens_q;
      const auto rule = ScoreRule<float>::of(problem_, head);
      for_each_stripe(problem_.tokens_q, [&](int64_t first) {
        const Matrix probs = p.rows_from(first), grads = ds.rows_from(first);
        multiply(scale_, q.rows_from(first), k, Form::kRightTransposed, probs);
        multiply(1.0f, dout.rows_from(first), v, Form::kRightTransposed, grads);
        for (int64_t i = 0; i < probs.rows; ++i) {
          float delta = dot(o.row(first + i), dout.row(first + i), problem_.dim_v());
          if (args.dlse != nullptr) delta -= args.dlse[head * problem_.tokens_q + first + i];
          const std::vector<Range> visible = mask.visible_keys(first + i);
          mend_overflow(visible, q.row(first + i), k, probs.row(i));
          softmax_gradient(rule, visible, first + i, lse[first + i], delta, probs.row(i), grads.row(i),
                           probs.columns);
        }
        multiply(scale_, grads, k, Form::kPlain, dq.rows_from(first));
      });
      const bool add = head % problem_.group_size() != 0;  // the heads of a group share dk and dv
      for_each_stripe(problem_.tokens_kv, [&](int64_t first) {
        multiply(1.0f, p.columns_from(first), dout, Form::kLeftTransposed, dv.rows_from(first), add);
        multiply(scale_, ds.columns_from(first), q, Form::kLeftTransposed, dk.rows_from(first), add);
      });
      store(dq, args.dq, head);
      if ((head + 1) % problem_.group_size() == 0) {
        store(dk, args.dk, kv_head);
        store(dv, args.dv, kv_head);
      }
    }
    finish_sinks(args, cpu_device(), Stream{});
  }

 private:
  static Matrix take(float*& memory, int64_t rows, int64_t columns) {
    const Matrix matrix{memory, rows, columns, columns};
    memory += rows * columns;
    return matrix;
  }

  static void load(const TensorView& tensor, int64_t head, const Matrix& matrix) {
    for_each_stripe(matrix.rows, [&](int64_t first) {
      for (int64_t i = first; i < std::min(first + kStripe, matrix.rows); ++i) {
        load_elements(tensor.row_address(i, head), tensor.dtype, matrix.columns, 1.0f, matrix.row(i));
      }
    });
  }

  static void store(const Matrix& matrix, const TensorView& tensor, int64_t head) {
    for_each_stripe(matrix.rows, [&](int64_t first) {
      for (int64_t i = first; i < std::min(first + kStripe, matrix.rows); ++i) {
        store_elements(matrix.row(i), matrix.columns, 1.0f, tensor.row_address(i, head), tensor.dtype);
      }
    });
  }

  // Recomputes scores that are NaN in f64. If partial sums leave the range of f32 in both directions, the
  // order of additions decides whether the f32 score becomes NaN.
  void mend_overflow(const std::vector<Range>& visible, const float* q, const Matrix& k, float* row) const {
    constexpr double kLargest = std::numeric_limits<float>::max();
    for (const Range& keys : visible) {
      for (int64_t j = keys.begin; j < keys.end; ++j) {
        if (std::isfinite(row[j])) continue;
        double sum = 0;
        for (int64_t d = 0; d < k.columns; ++d) sum += double{q[d]} * double{k.row(j)[d]};
        row[j] = static_cast<float>(std::clamp(sum * scale_, -kLargest, kLargest));
      }
    }
  }

  // Turns the scaled products of a row into scores.
  static void apply(const ScoreRule<float>& rule, const std::vector<Range>& visible, int64_t i, float* row) {
    if (rule.plain()) return;
    for (const Range& keys : visible) {
      for (int64_t j = keys.begin; j < keys.end; ++j) row[j] = rule.score(row[j], i, j);
    }
  }

  // Turns a row of scores into probabilities, 0 for hidden keys; returns the logarithm of the sum.
  static float softmax(const std::vector<Range>& visible, float* row, int64_t columns) {
    constexpr float kLargest = std::numeric_limits<float>::max();
    float maximum = -kLargest;  // finite, so that no score difference is infinity minus infinity
    for (const Range& keys : visible) {
      for (int64_t j = keys.begin; j < keys.end; ++j) maximum = std::max(maximum, std::min(row[j], kLargest));
    }
    double sum = 0;
    for (const Range& keys : visible) {
      for (int64_t j = keys.begin; j < keys.end; ++j) {
        row[j] = std::exp(std::min(row[j], kLargest) - maximum);
        sum += row[j];
      }
    }
    clear_hidden(visible, row, columns);
    if (sum == 0) return -std::numeric_limits<float>::infinity();
    const float factor = static_cast<float>(1 / sum);
    for (const Range& keys : visible) {
      for (int64_t j = keys.begin; j < keys.end; ++j) row[j] *= factor;
    }
    return static_cast<float>(maximum + std::log(sum));
  }

  // Turns the scaled products of row i into probabilities, and gradients of those into gradients of the
  // products.
  static void softmax_gradient(const ScoreRule<float>& rule, const std::vector<Range>& visible, int64_t i,
                               float lse, float delta, float* row, float* gradient, int64_t columns) {
    const bool none = lse == -std::numeric_limits<float>::infinity();
    for (const Range& keys : visible) {
      for (int64_t j = keys.begin; j < keys.end; ++j) {
        // Clamp to 1: large scores round coarsely.
        const float capped = rule.capped(row[j]), score = capped - rule.penalty(i, j);
        row[j] = none ? 0.0f : std::exp(std::min(score - lse, 0.0f));
        gradient[j] = none ? 0.0f : row[j] * (gradient[j] - delta) * rule.derivative(capped);
      }
    }
    clear_hidden(visible, row, columns);
    clear_hidden(visible, gradient, columns);
  }

  static void clear_hidden(const std::vector<Range>& visible, float* row, int64_t columns) {
    int64_t next = 0;
    for (const Range& keys : visible) {
      std::fill(row + next, row + keys.begin, 0.0f);
      next = keys.end;
    }
    std::fill(row + next, row + columns, 0.0f);
  }

  Problem problem_;
  float scale_;
};

class CpuNaive final : public Kernel {
 public:
  std::string_view name() const override { return "cpu-naive"; }
  std::string_view description() const override {
    return "CPU reference, holds all scores of a head; f32, bf16, f16; any head_dim; memory O(S^2)";
  }
  DeviceKind device_kind() const override { return DeviceKind::kCpu; }

  Support supports(const Problem& problem, Direction direction, const Device& device) const override {
    if (device.kind != DeviceKind::kCpu) return {"runs on the CPU only"};
    if (problem.dtype == DType::kF64) return {"needs dtype f32, bf16 or f16"};
    const double pairs = static_cast<double>(problem.tokens_q) * static_cast<double>(problem.tokens_kv);
    if (pairs > 0x1p48)
      return {fmt::format("needs {:.1e} scores for a head, more than any memory holds", pairs)};
    const double gib = static_cast<double>(NaivePlan::score_bytes(problem, direction)) / (1 << 30);
    const double half_gib = static_cast<double>(device.memory_bytes) / 2 / (1 << 30);
    if (device.memory_bytes > 0 && gib > half_gib) {
      return {fmt::format(
          "needs {:.1f} GiB for the scores of a head, more than half of this machine's {:.1f} GiB", gib,
          2 * half_gib)};
    }
    return {lacking({.head_dim_v = true, .softcap = true, .alibi = true}, problem)};
  }

  std::unique_ptr<Plan> plan(const Problem& problem, const Device&) const override {
    return std::make_unique<NaivePlan>(problem);
  }
};

}  // namespace

const Kernel& cpu_naive() {
  static const CpuNaive kernel;
  return kernel;
}

}  // namespace longspan
