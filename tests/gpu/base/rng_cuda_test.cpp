// Random numbers on a GPU agree with those on the CPU.
#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "base/buffer.h"
#include "base/dtype.h"
#include "base/rng.h"
#include "gpu/gpu.h"

namespace longspan {
namespace {

double element(const std::vector<char>& bytes, DType dtype, size_t i) {
  const char* at = bytes.data() + i * size_of(dtype);
  switch (dtype) {
    case DType::kF32:
      return *reinterpret_cast<const float*>(at);
    case DType::kBF16:
      return to_float(*reinterpret_cast<const bf16*>(at));
    case DType::kF16:
      return to_float(*reinterpret_cast<const f16*>(at));
    case DType::kF64:
      break;
  }
  return *reinterpret_cast<const double*>(at);
}

class NormalOnGpu : public testing::TestWithParam<DType> {};

// The same numbers as on the CPU up to the last bit, since the logarithms of two libraries may round
// differently.
TEST_P(NormalOnGpu, EqualsTheCpus) {
  LONGSPAN_NEEDS_GPU();
  const DType dtype = GetParam();
  const double ulp = dtype == DType::kBF16 ? 0x1p-8 : dtype == DType::kF16 ? 0x1p-10 : 0x1p-23;
  const Device gpu = first_gpu();
  const int64_t tokens = 1031, heads = 3, head_dim = 37;  // the elements of one counter lie in two rows
  const size_t bytes = static_cast<size_t>(tokens * (heads * head_dim + 5)) * size_of(dtype);
  std::vector<char> host(bytes, 0), back(bytes);
  const Buffer device(bytes, gpu);
  fill_bytes(device.data(), DeviceKind::kCuda, 0, bytes);
  TensorView view = TensorView::contiguous(host.data(), dtype, tokens, heads, head_dim);
  view.token_stride += 5;
  fill_normal(view, 0x123456789abcdefull, 77);
  view.data = device.data();
  fill_normal(view, 0x123456789abcdefull, 77, gpu);
  copy_bytes(back.data(), DeviceKind::kCpu, device.data(), DeviceKind::kCuda, bytes);

  size_t different = 0;
  double square = 0;
  const size_t elements = bytes / size_of(dtype);
  for (size_t i = 0; i < elements; ++i) {
    const double a = element(host, dtype, i), b = element(back, dtype, i);
    ASSERT_LE(std::abs(a - b), ulp * std::abs(a) + 1e-12) << "element " << i;
    different += a != b;
    square += b * b;
  }
  EXPECT_LT(different, elements / 1000);
  EXPECT_NEAR(square / static_cast<double>(tokens * heads * head_dim), 1, 0.03);
}

INSTANTIATE_TEST_SUITE_P(Types, NormalOnGpu,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16, DType::kF64),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace longspan
