// The counting oracle writes and checks its tensors on a GPU as on the CPU.
#include <array>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "attention/element.h"
#include "attention/oracle/counting_tensors.h"
#include "base/buffer.h"
#include "gpu/gpu.h"

namespace longspan {
namespace {

constexpr int64_t kTokens = 700, kHeads = 3, kDim = 16;

struct Tensor {
  Buffer memory;
  TensorView view;
  Tensor(DType dtype, const Device& device)
      : view(TensorView::contiguous(nullptr, dtype, kTokens, kHeads, kDim)) {
    memory = Buffer(view.bytes(), device);
    view.data = memory.data();
    fill_bytes(view.data, device.kind, 0xff, view.bytes());
  }
};

void expect_same(const Tensor& host, const Tensor& device) {
  std::vector<unsigned char> got(host.view.bytes());
  copy_bytes(got.data(), DeviceKind::kCpu, device.view.data, DeviceKind::kCuda, got.size());
  EXPECT_EQ(std::memcmp(got.data(), host.view.data, got.size()), 0);
}

class CountingTensorsCuda : public testing::TestWithParam<DType> {};

TEST_P(CountingTensorsCuda, AreWrittenAsOnTheCpu) {
  LONGSPAN_NEEDS_GPU();
  const Tensor host(GetParam(), cpu_device()), device(GetParam(), first_gpu());
  for (const int64_t first : {0, 1, 3}) {
    write_slots(host.view, DeviceKind::kCpu, first, kDim - 3);
    write_slots(device.view, DeviceKind::kCuda, first, kDim - 3);
    expect_same(host, device);
  }
  const auto value = [](int64_t t, int64_t h) {
    return 1.0 / static_cast<double>(t + 1) - static_cast<double>(h);
  };
  write_first_elements(host.view, DeviceKind::kCpu, value);
  write_first_elements(device.view, DeviceKind::kCuda, value);
  expect_same(host, device);
}

TEST_P(CountingTensorsCuda, AreCheckedAsOnTheCpu) {
  LONGSPAN_NEEDS_GPU();
  const Tensor host(GetParam(), cpu_device()), device(GetParam(), first_gpu());
  write_zero(host.view, DeviceKind::kCpu);
  const auto compare = [&](int64_t t, int64_t h, int64_t d, double x) {
    set_element(host.view, t, h, d, x);
    copy_bytes(device.view.data, DeviceKind::kCuda, host.view.data, DeviceKind::kCpu, host.view.bytes());
    const auto want = first_nonzero(host.view, DeviceKind::kCpu);
    const auto got = first_nonzero(device.view, DeviceKind::kCuda);
    ASSERT_EQ(got.has_value(), want.has_value());
    if (!want) return;
    EXPECT_EQ((std::array{got->token, got->head, got->d}), (std::array{want->token, want->head, want->d}));
    if (want->value == want->value) EXPECT_EQ(got->value, want->value);
  };
  compare(5, 1, 3, -0.0);
  for (int64_t t = kTokens - 1; t > 20; t -= 61) compare(t, t % kHeads, t % kDim, t % 2 == 0 ? 1 : -3);
  compare(0, 0, 1, std::numeric_limits<double>::quiet_NaN());
}

INSTANTIATE_TEST_SUITE_P(DTypes, CountingTensorsCuda,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16, DType::kF64),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace longspan
