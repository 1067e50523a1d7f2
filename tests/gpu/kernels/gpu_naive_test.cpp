// gpu-naive against the definition of attention in fp64: whole tensors, masks with every shape of band.
#include "kernels/gpu_naive/gpu_naive.h"

#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include <gmock/gmock.h>

#include "base/buffer.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/rng.h"
#include "gpu/kernels/hopper.h"

namespace longspan {
namespace {

// [tokens, heads, head_dim] in double.
struct Host {
  int64_t tokens = 0, heads = 0, head_dim = 0;
  std::vector<double> values;
  const double* row(int64_t token, int64_t head) const {
    return values.data() + (token * heads + head) * head_dim;
  }
  double* row(int64_t token, int64_t head) { return values.data() + (token * heads + head) * head_dim; }
};

Host zeros(int64_t tokens, int64_t heads, int64_t head_dim) {
  return {tokens, heads, head_dim, std::vector<double>(static_cast<size_t>(tokens * heads * head_dim), 0)};
}

Host download(const TensorView& view) {
  std::vector<char> bytes(view.bytes());
  copy_bytes(bytes.data(), DeviceKind::kCpu, view.data, DeviceKind::kCuda, bytes.size());
  Host host = zeros(view.tokens, view.heads, view.head_dim);
  for (size_t i = 0; i < host.values.size(); ++i) {
    const char* at = bytes.data() + i * size_of(view.dtype);
    if (view.dtype == DType::kF32) host.values[i] = *reinterpret_cast<const float*>(at);
    if (view.dtype == DType::kBF16) host.values[i] = to_float(*reinterpret_cast<const bf16*>(at));
    if (view.dtype == DType::kF16) host.values[i] = to_float(*reinterpret_cast<const f16*>(at));
  }
  return host;
}

struct Tensor {
  Buffer memory;
  TensorView view;
  Tensor(DType dtype, int64_t tokens, int64_t heads, int64_t head_dim, const Device& device) {
    view = TensorView::contiguous(nullptr, dtype, tokens, heads, head_dim);
    memory = Buffer(view.bytes(), device);
    view.data = memory.data();
    fill_bytes(view.data, DeviceKind::kCuda, 0xff, view.bytes());  // NaN shows elements that are not written
  }
};

double dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

struct Expected {
  Host o, dq, dk, dv;
  std::vector<double> lse;  // [heads_q, tokens_q]
};

Expected by_definition(const Problem& p, const Host& q, const Host& k, const Host& v, const Host& dout) {
  Expected e{zeros(p.tokens_q, p.heads_q, p.head_dim), zeros(p.tokens_q, p.heads_q, p.head_dim),
             zeros(p.tokens_kv, p.heads_kv, p.head_dim), zeros(p.tokens_kv, p.heads_kv, p.head_dim),
             std::vector<double>(static_cast<size_t>(p.heads_q * p.tokens_q),
                                 -std::numeric_limits<double>::infinity())};
  const int64_t n = p.head_dim;
  for (int64_t h = 0; h < p.heads_q; ++h) {
    const int64_t g = p.kv_head_of(h);
    for (int64_t i = 0; i < p.tokens_q; ++i) {
      std::vector<int64_t> seen;
      for (const Range& range : p.mask_of_query_head(h).visible_keys(i)) {
        for (int64_t j = range.begin; j < range.end; ++j) seen.push_back(j);
      }
      if (seen.empty()) continue;
      std::vector<double> weights;
      double top = -std::numeric_limits<double>::infinity(), sum = 0;
      for (int64_t j : seen) {
        weights.push_back(p.softmax_scale() * dot(q.row(i, h), k.row(j, g), n));
        top = std::max(top, weights.back());
      }
      for (double& w : weights) sum += w = std::exp(w - top);
      e.lse[static_cast<size_t>(h * p.tokens_q + i)] = top + std::log(sum);
      for (size_t s = 0; s < seen.size(); ++s) {
        weights[s] /= sum;
        for (int64_t d = 0; d < n; ++d) e.o.row(i, h)[d] += weights[s] * v.row(seen[s], g)[d];
      }
      const double delta = dot(e.o.row(i, h), dout.row(i, h), n);
      for (size_t s = 0; s < seen.size(); ++s) {
        const int64_t j = seen[s];
        const double ds = p.softmax_scale() * weights[s] * (dot(dout.row(i, h), v.row(j, g), n) - delta);
        for (int64_t d = 0; d < n; ++d) {
          e.dv.row(j, g)[d] += weights[s] * dout.row(i, h)[d];
          e.dq.row(i, h)[d] += ds * k.row(j, g)[d];
          e.dk.row(j, g)[d] += ds * q.row(i, h)[d];
        }
      }
    }
  }
  return e;
}

// ||got - expected|| / ||expected||; NaN anywhere never passes.
double error_of(const Host& got, const Host& expected) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < got.values.size(); ++i) {
    difference += (got.values[i] - expected.values[i]) * (got.values[i] - expected.values[i]);
    norm += expected.values[i] * expected.values[i];
  }
  return norm == 0 ? std::sqrt(difference) : std::sqrt(difference / norm);
}

void expect_right(const Problem& problem, const std::string& what) {
  SCOPED_TRACE(what + ", " + std::string(name_of(problem.dtype)) +
               (problem.fp32_output ? ", f32 output" : ""));
  const Device gpu = first_gpu();
  const Problem& p = problem;
  const DType out = p.output_dtype();
  Tensor q(p.dtype, p.tokens_q, p.heads_q, p.head_dim, gpu),
      k(p.dtype, p.tokens_kv, p.heads_kv, p.head_dim, gpu),
      v(p.dtype, p.tokens_kv, p.heads_kv, p.head_dim, gpu), o(out, p.tokens_q, p.heads_q, p.head_dim, gpu),
      dout(p.dtype, p.tokens_q, p.heads_q, p.head_dim, gpu), lse(DType::kF32, p.heads_q, p.tokens_q, 1, gpu),
      dq(out, p.tokens_q, p.heads_q, p.head_dim, gpu), dk(out, p.tokens_kv, p.heads_kv, p.head_dim, gpu),
      dv(out, p.tokens_kv, p.heads_kv, p.head_dim, gpu);
  uint64_t stream = 0;
  for (const Tensor* input : {&q, &k, &v, &dout}) {
    fill_normal(input->view, static_cast<uint64_t>(p.tokens_q * 1000 + p.tokens_kv), stream++, gpu);
  }
  const Kernel& kernel = gpu_naive();
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    ASSERT_TRUE(kernel.supports(p, direction, gpu)) << kernel.supports(p, direction, gpu).reason;
  }
  const std::unique_ptr<Plan> plan = kernel.plan(p, gpu);
  const Buffer forward_memory(plan->workspace_bytes(Direction::kForward), gpu);
  const Buffer backward_memory(plan->workspace_bytes(Direction::kBackward), gpu);
  fill_bytes(forward_memory.data(), DeviceKind::kCuda, 0xff, forward_memory.bytes());
  fill_bytes(backward_memory.data(), DeviceKind::kCuda, 0xff, backward_memory.bytes());
  auto* lse_data = static_cast<float*>(lse.view.data);
  plan->forward({q.view, k.view, v.view, o.view, lse_data, forward_memory.data()}, Stream{});
  plan->backward({q.view, k.view, v.view, o.view, dout.view, lse_data, dq.view, dk.view, dv.view,
                  backward_memory.data()},
                 Stream{});

  const Expected expected =
      by_definition(p, download(q.view), download(k.view), download(v.view), download(dout.view));
  const double tolerance = p.dtype == DType::kF32 ? 5e-6 : p.dtype == DType::kBF16 ? 8e-3 : 1.5e-3;
  EXPECT_LT(error_of(download(o.view), expected.o), tolerance);
  EXPECT_LT(error_of(download(dq.view), expected.dq), 2 * tolerance);
  EXPECT_LT(error_of(download(dk.view), expected.dk), 2 * tolerance);
  EXPECT_LT(error_of(download(dv.view), expected.dv), 2 * tolerance);
  const Host got_lse = download(lse.view);
  for (size_t i = 0; i < expected.lse.size(); ++i) {
    if (std::isinf(expected.lse[i])) {
      ASSERT_EQ(got_lse.values[i], expected.lse[i]) << "lse of row " << i;
    } else {
      ASSERT_NEAR(got_lse.values[i], expected.lse[i], 2e-5) << "lse of row " << i;
    }
  }
}

constexpr int64_t kBelow = kUnboundedBelow, kAbove = kUnboundedAbove;

class GpuNaive : public testing::TestWithParam<DType> {};

TEST_P(GpuNaive, ComputesEveryShapeOfBand) {
  LONGSPAN_NEEDS_GPU();
  for (const int64_t s : {int64_t{1}, int64_t{2}, int64_t{63}, int64_t{129}, int64_t{300}}) {
    const auto run = [&](const std::string& what, std::vector<Band> bands) {
      expect_right(problem_of({Mask(s, s, std::move(bands))}, 4, 2, 40, GetParam()),
                   what + " of " + std::to_string(s));
    };
    run("full", {{{0, s}, {0, s}}});
    run("causal", {{{0, s}, {0, s}, kBelow, 0}});
    run("inverse causal", {{{0, s}, {0, s}, 0, kAbove}});
    run("window", {{{0, s}, {0, s}, -17, 5}});
    run("nothing at all", {});
    if (s < 10) continue;
    run("two documents, the second causal, and a row without keys",
        {{{0, s / 3}, {0, s / 3}}, {{s / 3 + 1, s}, {s / 3 + 1, s}, kBelow, 0}});
    run("a global column, a hole, a far window",
        {{{0, s}, {0, 3}}, {{5, s}, {7, s / 2}}, {{0, s}, {s / 2, s}, 20, 40}});
    std::vector<Band> blocks;  // several layers in a tile
    for (int64_t i = 0; i < s / 10; ++i) {
      for (int64_t j = i % 2; j < s / 10; j += 2) {
        blocks.push_back({{10 * i, 10 * i + 10}, {10 * j, 10 * j + 10}});
      }
    }
    run("a chequerboard", std::move(blocks));
  }
}

TEST_P(GpuNaive, TakesRectanglesHeadMasksAndAnyHeadDim) {
  LONGSPAN_NEEDS_GPU();
  expect_right(problem_of({Mask(100, 270, {{{0, 100}, {0, 270}, kBelow, 150}})}, 3, 1, 128, GetParam()),
               "rectangle");
  expect_right(problem_of({Mask(200, 65, {{{50, 200}, {0, 65}, -90, 0}})}, 2, 2, 64, GetParam()),
               "tall rectangle");
  expect_right(problem_of({Mask(130, 130, {{{0, 130}, {0, 130}}}), Mask(130, 130, {{{0, 64}, {64, 128}}})}, 6,
                          2, 8, GetParam()),
               "a mask a head");
  Problem p = problem_of({Mask(90, 90, {{{0, 90}, {0, 90}, kBelow, 0}})}, 8, 8, 256, GetParam());
  p.fp32_output = true;
  p.scale = 0.3f;
  expect_right(p, "own scale");
}

INSTANTIATE_TEST_SUITE_P(Types, GpuNaive, testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(GpuNaiveMemory, IsReportedAndUnavailableForLongSequences) {
  LONGSPAN_NEEDS_GPU();
  const int64_t s = 1 << 20;
  const Problem p = problem_of({Mask(s, s, {{{0, s}, {0, s}, kBelow, 0}})}, 1, 1, 128, DType::kBF16);
  const std::unique_ptr<Plan> plan = gpu_naive().plan(p, first_gpu());
  const size_t bytes = plan->workspace_bytes(Direction::kForward);
  EXPECT_GE(bytes, size_t{6} << 40);  // 6 bytes per pair
  try {
    const Buffer memory(bytes, first_gpu());
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                testing::MatchesRegex("out of memory \\(needs 61[0-9][0-9].* GiB, .* GiB free\\)"));
  }
}

TEST(GpuNaiveSupport, SaysWhatItNeeds) {
  const Problem p = problem_of({Mask(8, 8, {{{0, 8}, {0, 8}}})}, 1, 1, 8, DType::kF64);
  EXPECT_EQ(gpu_naive().supports(p, Direction::kForward, cpu_device()).reason, "needs a CUDA device");
  Device gpu;
  gpu.kind = DeviceKind::kCuda;
  EXPECT_THAT(gpu_naive().supports(p, Direction::kForward, gpu).reason, testing::HasSubstr("has no f64"));
}

}  // namespace
}  // namespace longspan
