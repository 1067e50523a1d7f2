// Sums over tensors in GPU memory equal those computed on the host.
#include "attention/oracle/sweeps_cuda.h"

#include <vector>

#include <gtest/gtest.h>

#include "attention/element.h"
#include "base/buffer.h"
#include "base/rng.h"
#include "gpu/gpu.h"

namespace longspan {
namespace {

constexpr int64_t kTokens = 1000, kHeads = 6, kHeadDim = 72;

struct Pair {
  explicit Pair(DType dtype)
      : host(TensorView::contiguous(nullptr, dtype, kTokens, kHeads, kHeadDim)),
        device(host),
        host_memory(host.bytes(), cpu_device()),
        device_memory(host.bytes(), first_gpu()) {
    host.data = host_memory.data();
    device.data = device_memory.data();
    fill_bytes(host.data, DeviceKind::kCpu, 0xff, host.bytes());
    fill_bytes(device.data, DeviceKind::kCuda, 0xff, host.bytes());
  }

  TensorView host, device;
  Buffer host_memory, device_memory;
};

TEST(Sweeps, SumSquares) {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    const Pair a(dtype), b(dtype);
    fill_normal(a.host, 3, 0);
    fill_normal(b.host, 3, 1);
    double difference = 0, norm = 0;
    std::vector<double> x(kHeadDim), y(kHeadDim);
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t h = 0; h < kHeads; ++h) {
        load_row(a.host, t, h, x.data());
        load_row(b.host, t, h, y.data());
        for (int64_t d = 0; d < kHeadDim; ++d) {
          difference += (x[d] - y[d]) * (x[d] - y[d]);
          norm += y[d] * y[d];
        }
      }
    }
    for (const Pair* pair : {&a, &b}) {
      copy_bytes(pair->device.data, DeviceKind::kCuda, pair->host.data, DeviceKind::kCpu, pair->host.bytes());
    }
    const auto [got_difference, got_norm] = squares_cuda(a.device, b.device);
    EXPECT_NEAR(got_difference, difference, 1e-12 * difference);
    EXPECT_NEAR(got_norm, norm, 1e-12 * norm);
    EXPECT_EQ(squares_cuda(a.device, a.device).first, 0);
  }
}

}  // namespace
}  // namespace longspan
