// What goes beyond plain attention, on a GPU: head_dim_v, softcap, ALiBi and sinks in every kernel that has
// them, against the fp64 oracle; sinks that are added afterwards against the CPU's.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "attention/element.h"
#include "attention/oracle/verify.h"
#include "base/buffer.h"
#include "base/rng.h"
#include "edges.h"
#include "hopper.h"
#include "kernels/registry.h"
#include "longspan/attention.h"

namespace longspan {
namespace {

struct Feature {
  std::string name;
  int64_t head_dim = 64, head_dim_v = 0;
  float softcap = 0;
  bool alibi = false;
};

const std::vector<Feature> kFeatures = {
    {.name = "softcap", .softcap = 20},
    {.name = "small softcap", .head_dim = 128, .softcap = 1},
    {.name = "ALiBi", .head_dim = 128, .alibi = true},
    {.name = "values of 128", .head_dim = 192, .head_dim_v = 128},
    {.name = "values of 96", .head_dim = 40, .head_dim_v = 96},
    {.name = "all", .head_dim = 64, .head_dim_v = 32, .softcap = 5, .alibi = true},
    {.name = "all", .head_dim = 256, .head_dim_v = 200, .softcap = 5, .alibi = true},
};

Problem with(const Feature& feature, Problem problem) {
  problem.head_dim_v = feature.head_dim_v;
  problem.softcap = feature.softcap;
  for (int64_t h = 0; h < problem.heads_q && feature.alibi; ++h)
    problem.alibi_slopes.push_back(0.3f / static_cast<float>(1 + h));
  return problem;
}

TEST(Features, AreComputedByEveryKernelThatHasThem) {
  LONGSPAN_NEEDS_GPU();
  const Device gpu = first_gpu();
  int verified = 0;
  for (const Kernel* kernel : kernels()) {
    if (kernel->device_kind() != DeviceKind::kCuda) continue;
    for (const Feature& feature : kFeatures) {
      for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{700, 700}, {90, 600}, {600, 90}}) {
        for (const DType dtype : {DType::kBF16, DType::kF16}) {
          const int64_t shift = columns - rows;
          for (const Mask& mask : {one_band(rows, columns, kUnboundedBelow, shift),
                                   one_band(rows, columns, shift - 200, shift + 30)}) {
            Problem problem = with(feature, problem_of({mask}, 8, 2, feature.head_dim, dtype));
            problem.lse_gradient = dtype == DType::kF16;
            if (!kernel->supports(problem, Direction::kBackward, gpu)) continue;
            SCOPED_TRACE(fmt::format("{}, {}, {} x {}, {}", kernel->name(), feature.name, rows, columns,
                                     name_of(dtype)));
            const std::unique_ptr<Plan> plan = kernel->plan(problem, gpu);
            EXPECT_EQ(verify(*plan, problem, Direction::kBackward, gpu, {}).failure, "");
            ++verified;
          }
        }
      }
    }
  }
  EXPECT_GE(verified, 7 * 12);  // gpu-naive has all
  std::fprintf(stderr, "%d problems verified\n", verified);
}

TEST(Features, ADeclinedOneIsNeverIgnored) {
  LONGSPAN_NEEDS_GPU();
  const Device gpu = first_gpu();
  for (const Kernel* kernel : kernels()) {
    if (kernel->name() != "sm90") continue;
    for (const Feature& feature : kFeatures) {
      Problem problem =
          with(feature, problem_of({one_band(64, 64, kUnboundedBelow, 0)}, 2, 2, 64, DType::kBF16));
      EXPECT_THAT(kernel->supports(problem, Direction::kForward, gpu).reason,
                  testing::AnyOf(testing::HasSubstr("head_dim_v"), "has no softcap", "has no ALiBi"));
    }
  }
}

TEST(Features, SinksJoinEveryRowOfEveryKernel) {
  LONGSPAN_NEEDS_GPU();
  const Device gpu = first_gpu();
  int verified = 0;
  for (const Kernel* kernel : kernels()) {
    if (kernel->device_kind() != DeviceKind::kCuda) continue;
    for (const auto& [dim, dim_v] :
         {std::pair<int64_t, int64_t>{64, 64}, {128, 128}, {192, 128}, {256, 256}}) {
      for (const auto& [q, kv] : {std::pair<int64_t, int64_t>{8, 1}, {6, 2}, {3, 3}}) {
        // Rows that see no key, cut tiles, long rows, several items for each CTA.
        for (const Mask& mask : {one_band(700, 700, kUnboundedBelow, 0), one_band(3000, 3000, -200, -100),
                                 one_band(2500, 2500, kUnboundedBelow, kUnboundedAbove)}) {
          for (const int variant : {0, 1, 2}) {
            Problem problem = problem_of({mask}, q, kv, dim, variant == 2 ? DType::kF16 : DType::kBF16);
            problem.head_dim_v = dim_v;
            problem.lse_gradient = variant != 0;
            problem.fp32_output = variant == 1;
            problem.deterministic = variant == 2;
            if (!kernel->supports(problem, Direction::kBackward, gpu)) continue;
            SCOPED_TRACE(fmt::format("{}, {}/{}, {}:{}, {} tokens, {}", kernel->name(), dim, dim_v, q, kv,
                                     mask.rows(), variant));
            const std::unique_ptr<Plan> plan = kernel->plan(problem, gpu);
            problem.sinks = drawn_sinks(q, 1);
            problem.sinks[0] = 80, problem.sinks[1] = -80;  // nearly all of a row, and nearly nothing
            const VerifyReport report = verify(*plan, problem, Direction::kBackward, gpu, {});
            EXPECT_EQ(report.failure, "");
            EXPECT_EQ(report.tensors.size(), 6u);
            ++verified;
          }
        }
      }
    }
  }
  std::fprintf(stderr, "%d problems verified\n", verified);
  EXPECT_GE(verified, 4 * 27);  // gpu-naive has all
}

class Sinks : public testing::TestWithParam<std::tuple<DType, int64_t>> {};

// A head_dim whose chunks divide a warp, one whose do not, one without chunks, and one with more than a warp
// has lanes.
INSTANTIATE_TEST_SUITE_P(All, Sinks,
                         testing::Combine(testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                                          testing::Values(64, 72, 70, 264)));

TEST_P(Sinks, AreThoseOfTheCpu) {
  LONGSPAN_NEEDS_GPU();
  const Device gpu = first_gpu(), cpu = cpu_device();
  const DType dtype = std::get<0>(GetParam());
  const int64_t dim = std::get<1>(GetParam());
  constexpr int64_t kTokens = 1000, kHeads = 6;
  struct Memory {
    Buffer o, dout, lse, dlse, sinks, dsinks;
  };
  const auto make = [&](const Device& device) {
    const size_t rows = kTokens * kHeads * sizeof(float), heads = kHeads * sizeof(float);
    const size_t bytes = kTokens * kHeads * dim * size_of(dtype);
    return Memory{Buffer(bytes, device), Buffer(bytes, device), Buffer(rows, device),
                  Buffer(rows, device),  Buffer(heads, device), Buffer(heads, device)};
  };
  const auto view = [&](const Buffer& memory) {
    return TensorView::contiguous(memory.data(), dtype, kTokens, kHeads, dim);
  };
  const auto numbers = [&](const Buffer& memory) {
    return TensorView::contiguous(memory.data(), DType::kF32, static_cast<int64_t>(memory.bytes() / 4), 1, 1);
  };
  const Memory host = make(cpu), device = make(gpu);
  fill_normal(view(host.o), 1, 0);
  fill_normal(view(host.dout), 1, 1);
  fill_normal(numbers(host.lse), 1, 2);
  fill_normal(numbers(host.dlse), 1, 3);
  fill_normal(numbers(host.sinks), 1, 4);
  host.lse.as<float>()[3] = -INFINITY;  // a row that sees no key
  const auto copy = [](const Buffer& to, const Buffer& from) {
    copy_bytes(to.data(), to.kind(), from.data(), from.kind(), from.bytes());
  };
  copy(device.o, host.o);
  copy(device.dout, host.dout);
  copy(device.lse, host.lse);
  copy(device.dlse, host.dlse);
  copy(device.sinks, host.sinks);
  for (const auto& [m, where] : {std::pair<const Memory&, const Device&>{host, cpu}, {device, gpu}}) {
    add_sinks(view(m.o), m.lse.as<float>(), m.sinks.as<float>(), where, Stream{});
    sink_gradients({view(m.o), view(m.dout), m.lse.as<float>(), m.dlse.as<float>(), m.sinks.as<float>(),
                    m.dsinks.as<float>()},
                   where, Stream{});
  }
  const Memory got = make(cpu);
  copy(got.lse, device.lse);
  copy(got.dsinks, device.dsinks);
  for (int64_t i = 0; i < kTokens * kHeads; ++i)
    ASSERT_NEAR(got.lse.as<float>()[i], host.lse.as<float>()[i], 1e-5) << i;
  for (int64_t h = 0; h < kHeads; ++h)
    EXPECT_NEAR(got.dsinks.as<float>()[h], host.dsinks.as<float>()[h], 0.05) << h;
  const HostCopy o(view(device.o), DeviceKind::kCuda);
  const double tolerance = dtype == DType::kF32 ? 1e-5 : (dtype == DType::kBF16 ? 4e-2 : 4e-3);
  for (int64_t t = 0; t < kTokens; ++t)
    for (int64_t h = 0; h < kHeads; ++h)
      for (int64_t d = 0; d < dim; ++d)
        ASSERT_NEAR(get_element(o.view(), t, h, d), get_element(view(host.o), t, h, d), tolerance);
}

}  // namespace
}  // namespace longspan
