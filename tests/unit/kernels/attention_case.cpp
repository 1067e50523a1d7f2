#include "attention_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/dtype.h"
#include "base/rng.h"

namespace longspan {

namespace {

float element(const TensorView& tensor, int64_t token, int64_t head, int64_t d) {
  switch (tensor.dtype) {
    case DType::kBF16:
      return to_float(tensor.row<bf16>(token, head)[d]);
    case DType::kF16:
      return to_float(tensor.row<f16>(token, head)[d]);
    default:
      return tensor.row<float>(token, head)[d];
  }
}

std::vector<float> to_floats(const TensorView& tensor) {
  std::vector<float> values;
  values.reserve(tensor.elements());
  for (int64_t t = 0; t < tensor.tokens; ++t) {
    for (int64_t h = 0; h < tensor.heads; ++h) {
      for (int64_t d = 0; d < tensor.head_dim; ++d) values.push_back(element(tensor, t, h, d));
    }
  }
  return values;
}

Buffer normal(int64_t tokens, int64_t heads, int64_t head_dim, DType dtype, float magnitude, uint64_t seed,
              uint64_t stream) {
  const int64_t count = tokens * heads * head_dim;
  Buffer wide(static_cast<size_t>(count) * sizeof(float), cpu_device());
  fill_normal(TensorView::contiguous(wide.data(), DType::kF32, tokens, heads, head_dim), seed, stream);
  Buffer buffer(static_cast<size_t>(count) * size_of(dtype), cpu_device());
  for (int64_t i = 0; i < count; ++i) {
    const float x = wide.as<float>()[i] * magnitude;
    if (dtype == DType::kBF16) {
      buffer.as<bf16>()[i] = to_bf16(x);
    } else if (dtype == DType::kF16) {
      buffer.as<f16>()[i] = to_f16(x);
    } else {
      buffer.as<float>()[i] = x;
    }
  }
  return buffer;
}

Buffer of_nan(size_t bytes) {
  Buffer buffer(bytes, cpu_device());
  if (bytes > 0) std::memset(buffer.data(), 0xff, bytes);
  return buffer;
}

}  // namespace

bool AttentionOutputs::same_bits(const AttentionOutputs& other) const {
  const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  };
  return same(o, other.o) && same(lse, other.lse) && same(dq, other.dq) && same(dk, other.dk) &&
         same(dv, other.dv);
}

AttentionCase::AttentionCase(const Problem& p, float magnitude, uint64_t seed)
    : problem_(p),
      q_(normal(p.tokens_q, p.heads_q, p.head_dim, p.dtype, magnitude, seed, 0)),
      k_(normal(p.tokens_kv, p.heads_kv, p.head_dim, p.dtype, magnitude, seed, 1)),
      v_(normal(p.tokens_kv, p.heads_kv, p.dim_v(), p.dtype, magnitude, seed, 2)),
      dout_(normal(p.tokens_q, p.heads_q, p.dim_v(), p.dtype, 1, seed, 3)) {
  p.check();
  if (!p.lse_gradient) return;
  const int64_t rows = p.heads_q * p.tokens_q;
  dlse_ = Buffer(static_cast<size_t>(rows) * sizeof(float), cpu_device());
  fill_normal(TensorView::contiguous(dlse_.data(), DType::kF32, rows, 1, 1), seed, 4);
}

AttentionOutputs AttentionCase::run(const Kernel& kernel) const {
  return run(*kernel.plan(problem_, cpu_device()));
}

AttentionOutputs AttentionCase::run(Plan& plan) const {
  const DType type = problem_.output_dtype();
  const auto like = [&](const TensorView& view) {
    return of_nan(static_cast<size_t>(view.elements()) * size_of(type));
  };
  const Buffer o_memory = like(dout()), dq_memory = like(q()), dk_memory = like(k()), dv_memory = like(v());
  const TensorView o = this->rows(o_memory, problem_.dim_v(), type),
                   dq = this->rows(dq_memory, problem_.head_dim, type),
                   dk = keys(dk_memory, problem_.head_dim, type),
                   dv = keys(dv_memory, problem_.dim_v(), type);
  const size_t rows = static_cast<size_t>(problem_.heads_q * problem_.tokens_q);
  const Buffer lse = of_nan(rows * sizeof(float));
  {
    const Buffer workspace = of_nan(plan.workspace_bytes(Direction::kForward));
    plan.forward({q(), k(), v(), o, lse.as<float>(), workspace.data()}, Stream{});
  }
  {
    const Buffer workspace = of_nan(plan.workspace_bytes(Direction::kBackward));
    plan.backward({q(), k(), v(), o, dout(), lse.as<float>(), dq, dk, dv, workspace.data(), workspace.bytes(),
                   dlse_.as<float>()},
                  Stream{});
  }
  return {to_floats(o), std::vector<float>(lse.as<float>(), lse.as<float>() + rows), to_floats(dq),
          to_floats(dk), to_floats(dv)};
}

AttentionOutputs AttentionCase::brute_force() const {
  const int64_t rows = problem_.tokens_q, keys = problem_.tokens_kv;
  const int64_t d = problem_.head_dim, e = problem_.dim_v();
  const double scale = problem_.softmax_scale(), cap = problem_.softcap;
  const std::vector<float> q = to_floats(this->q()), k = to_floats(this->k()), v = to_floats(this->v()),
                           dout = to_floats(this->dout());
  std::vector<double> o(dout.size()), lse(problem_.heads_q * rows), dq(q.size()), dk(k.size()), dv(v.size());
  std::vector<double> p(keys), dp(keys), slope(keys);  // slope: of the score by the scaled product
  for (int64_t head = 0; head < problem_.heads_q; ++head) {
    const int64_t kv_head = problem_.kv_head_of(head);
    const auto at_key = [&](int64_t j) { return (j * problem_.heads_kv + kv_head) * d; };
    const auto at_value = [&](int64_t j) { return (j * problem_.heads_kv + kv_head) * e; };
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t row = (i * problem_.heads_q + head) * d, out = (i * problem_.heads_q + head) * e;
      std::vector<int64_t> seen;
      for (const Range& range : problem_.mask_of_kv_head(kv_head).visible_keys(i)) {
        for (int64_t j = range.begin; j < range.end; ++j) seen.push_back(j);
      }
      double maximum = -std::numeric_limits<double>::infinity(), sum = 0, delta = 0;
      for (int64_t j : seen) {
        p[j] = dp[j] = 0;
        for (int64_t c = 0; c < d; ++c) p[j] += double{q[row + c]} * k[at_key(j) + c];
        for (int64_t c = 0; c < e; ++c) dp[j] += double{dout[out + c]} * v[at_value(j) + c];
        p[j] *= scale;
        slope[j] = 1;
        if (cap != 0) {
          slope[j] = 1 / std::pow(std::cosh(p[j] / cap), 2);
          p[j] = cap * std::tanh(p[j] / cap);
        }
        if (!problem_.alibi_slopes.empty())
          p[j] -= problem_.alibi_slopes[head] * static_cast<double>(std::abs(i + keys - rows - j));
        maximum = std::max(maximum, p[j]);
      }
      for (int64_t j : seen) sum += p[j] = std::exp(p[j] - maximum);
      lse[head * rows + i] = maximum + std::log(sum);
      for (int64_t j : seen) {
        p[j] /= sum;
        delta += p[j] * dp[j];
        for (int64_t c = 0; c < e; ++c) o[out + c] += p[j] * v[at_value(j) + c];
      }
      if (problem_.lse_gradient) delta -= dlse_.as<float>()[head * rows + i];
      for (int64_t j : seen) {
        const double ds = p[j] * (dp[j] - delta) * slope[j] * scale;
        for (int64_t c = 0; c < d; ++c) {
          dq[row + c] += ds * k[at_key(j) + c];
          dk[at_key(j) + c] += ds * q[row + c];
        }
        for (int64_t c = 0; c < e; ++c) dv[at_value(j) + c] += p[j] * dout[out + c];
      }
    }
  }
  const auto narrow = [](const std::vector<double>& x) { return std::vector<float>(x.begin(), x.end()); };
  return {narrow(o), narrow(lse), narrow(dq), narrow(dk), narrow(dv)};
}

double relative_error(const std::vector<float>& got, const std::vector<float>& truth, double floor) {
  const double infinity = std::numeric_limits<double>::infinity();
  if (got.size() != truth.size()) return infinity;
  double largest = floor, difference = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == truth[i] || (std::isnan(got[i]) && std::isnan(truth[i]))) continue;
    if (!std::isfinite(got[i]) || !std::isfinite(truth[i])) return infinity;
    difference = std::max(difference, std::abs(double{got[i]} - truth[i]));
  }
  for (float x : truth) {
    if (std::isfinite(x)) largest = std::max(largest, std::abs(double{x}));
  }
  return difference / largest;
}

Problem make_problem(const Mask& mask, int64_t heads_q, int64_t heads_kv, int64_t head_dim, DType dtype) {
  Problem problem;
  problem.tokens_q = mask.rows();
  problem.tokens_kv = mask.columns();
  problem.heads_q = heads_q;
  problem.heads_kv = heads_kv;
  problem.head_dim = head_dim;
  problem.dtype = dtype;
  problem.masks = std::make_shared<HeadMasks>(HeadMasks{mask});
  return problem;
}

}  // namespace longspan
