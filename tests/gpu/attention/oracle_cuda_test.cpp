// The oracle on a GPU agrees with the oracle on the CPU for all masks, dtypes and head groups.
#include "attention/oracle/oracle_cuda.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/buffer.h"
#include "base/rng.h"
#include "gpu/gpu.h"

namespace longspan {
namespace {

struct Pair {  // one tensor in both memories, with equal bits
  Buffer host_memory, device_memory;
  TensorView host, device;
  Pair(DType dtype, int64_t tokens, int64_t heads, int64_t head_dim, uint64_t stream, const Device& gpu) {
    host = device = TensorView::contiguous(nullptr, dtype, tokens, heads, head_dim);
    host_memory = Buffer(host.bytes(), cpu_device());
    device_memory = Buffer(host.bytes(), gpu);
    host.data = host_memory.data();
    device.data = device_memory.data();
    fill_normal(host, 5, stream);
    copy_bytes(device.data, DeviceKind::kCuda, host.data, DeviceKind::kCpu, host.bytes());
  }
};

void expect_near(const std::vector<double>& got, const std::vector<double>& expected, const char* what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  double largest = 0;
  for (double x : expected) largest = std::isinf(x) ? largest : std::max(largest, std::abs(x));
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isinf(expected[i])) {
      ASSERT_EQ(got[i], expected[i]) << what << " " << i;
    } else {
      ASSERT_NEAR(got[i], expected[i], 1e-10 * largest + 1e-300) << what << " " << i;
    }
  }
}

void expect_near(const ReferenceRows& got, const ReferenceRows& expected, const char* what) {
  SCOPED_TRACE(what);
  expect_near(got.values, expected.values, "values");
  expect_near(got.spread, expected.spread, "spread");
  expect_near(got.cancelled, expected.cancelled, "cancelled");
  expect_near(got.operands, expected.operands, "operands");
  expect_near(got.terms, expected.terms, "terms");
}

void compare(DType dtype, std::vector<Mask> masks, int64_t heads_q, int64_t heads_kv, int64_t head_dim) {
  SCOPED_TRACE(fmt::format("{} {}:{} heads of {}", name_of(dtype), heads_q, heads_kv, head_dim));
  const Device gpu = first_gpu();
  Problem p;
  p.tokens_q = masks.front().rows();
  p.tokens_kv = masks.front().columns();
  p.heads_q = heads_q;
  p.heads_kv = heads_kv;
  p.head_dim = head_dim;
  p.dtype = dtype;
  p.masks = std::make_shared<const HeadMasks>(std::move(masks));
  const Pair q(dtype, p.tokens_q, heads_q, head_dim, 0, gpu),
      k(dtype, p.tokens_kv, heads_kv, head_dim, 1, gpu), v(dtype, p.tokens_kv, heads_kv, head_dim, 2, gpu),
      o(DType::kF32, p.tokens_q, heads_q, head_dim, 3, gpu),
      dout(dtype, p.tokens_q, heads_q, head_dim, 4, gpu);
  Pair lse(DType::kF32, heads_q, p.tokens_q, 1, 5, gpu);
  // Any lse suffices for the sums of the backward pass if exp(score - lse) stays bounded.
  auto* values = static_cast<float*>(lse.host.data);
  for (int64_t i = 0; i < lse.host.elements(); ++i) values[i] = 4 + std::abs(values[i]);
  copy_bytes(lse.device.data, DeviceKind::kCuda, values, DeviceKind::kCpu, lse.host.bytes());

  OracleInputs host, device;
  host.q = q.host, host.k = k.host, host.v = v.host, host.o = o.host, host.dout = dout.host;
  host.lse = values;
  device.kind = DeviceKind::kCuda;
  device.q = q.device, device.k = k.device, device.v = v.device, device.o = o.device,
  device.dout = dout.device;
  device.lse = static_cast<const float*>(lse.device.data);
  SampleOptions options;
  options.per_head = 40;
  const Samples samples = choose_samples(p, Direction::kBackward, options);

  const ForwardReference on_cpu = reference_forward(p, host, samples),
                         on_gpu = reference_forward_cuda(p, device, samples);
  expect_near(on_gpu.o, on_cpu.o, "o");
  expect_near(on_gpu.lse, on_cpu.lse, "lse");
  expect_near(on_gpu.largest, on_cpu.largest, "largest");
  const BackwardReference cpu = reference_backward(p, host, samples),
                          there = reference_backward_cuda(p, device, samples);
  expect_near(there.dq, cpu.dq, "dq");
  expect_near(there.dk, cpu.dk, "dk");
  expect_near(there.dv, cpu.dv, "dv");
}

TEST(OracleOnGpu, EqualsTheCpus) {
  LONGSPAN_NEEDS_GPU();
  const int64_t s = 700;
  const Mask causal(s, s, {{{0, s}, {0, s}, kUnboundedBelow, 0}});
  const Mask gaps(
      s, s, {{{5, 300}, {0, 20}}, {{5, 300}, {40, 600}, -100, 30}, {{400, s}, {400, s}, kUnboundedBelow, 0}});
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    compare(dtype, {causal}, 4, 2, 128);
    compare(dtype, {gaps}, 3, 1, 40);
    compare(dtype, {causal, gaps}, 4, 2, 256);
    compare(dtype, {Mask(90, s, {{{0, 90}, {0, s}, kUnboundedBelow, 600}})}, 1, 1, 8);
  }
}

}  // namespace
}  // namespace longspan
