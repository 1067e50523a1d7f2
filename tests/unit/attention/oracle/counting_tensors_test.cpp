// The inputs that the counting oracle writes, and its search for nonzero elements.
#include "attention/oracle/counting_tensors.h"

#include <array>
#include <limits>

#include <gtest/gtest.h>

#include "attention/element.h"
#include "attention/oracle/slots.h"
#include "base/buffer.h"

namespace longspan {
namespace {

constexpr int64_t kTokens = 700, kHeads = 3, kDim = 16;

struct Host {
  Buffer memory;
  TensorView view;
  explicit Host(DType dtype) : view(TensorView::contiguous(nullptr, dtype, kTokens, kHeads, kDim)) {
    memory = Buffer(view.bytes(), cpu_device());
    view.data = memory.data();
    fill_bytes(view.data, DeviceKind::kCpu, 0xff, view.bytes());
  }
};

template <class Want>
void expect_elements(const TensorView& view, Want want) {
  for (int64_t t = 0; t < view.tokens; ++t) {
    for (int64_t h = 0; h < view.heads; ++h) {
      for (int64_t d = 0; d < view.head_dim; ++d)
        ASSERT_EQ(get_element(view, t, h, d), want(t, h, d)) << t << " " << h << " " << d;
    }
  }
}

class CountingTensors : public testing::TestWithParam<DType> {};

TEST_P(CountingTensors, HoldTheSlotsOfTheirTokens) {
  for (const int64_t first : {0, 1, 3}) {
    const int64_t slots = kDim - 3;
    const Host host(GetParam());
    write_slots(host.view, DeviceKind::kCpu, first, slots);
    expect_elements(host.view, [&](int64_t t, int64_t h, int64_t d) {
      if (d < first) return 1.0;
      double want = 0;
      for (int kind = 0; kind < kSlotKinds; ++kind) want += first + slot_of(t, h, kind, slots) == d ? 1 : 0;
      return want;
    });
  }
}

TEST_P(CountingTensors, HoldAValueInEachRow) {
  const Host host(GetParam());
  const auto value = [](int64_t t, int64_t h) { return static_cast<double>(t % 7) - static_cast<double>(h); };
  write_first_elements(host.view, DeviceKind::kCpu, value);
  expect_elements(host.view, [&](int64_t t, int64_t h, int64_t d) { return d == 0 ? value(t, h) : 0.0; });
}

TEST_P(CountingTensors, TheFirstThatIsNotZeroIsFound) {
  const Host host(GetParam());
  write_zero(host.view, DeviceKind::kCpu);
  EXPECT_FALSE(first_nonzero(host.view, DeviceKind::kCpu));
  set_element(host.view, 5, 1, 3, -0.0);  // counts as 0
  EXPECT_FALSE(first_nonzero(host.view, DeviceKind::kCpu));
  for (const auto& [t, h, d] : {std::array<int64_t, 3>{699, 2, 15}, {698, 0, 0}, {300, 1, 7}, {300, 1, 5}}) {
    set_element(host.view, t, h, d, 2);
    const auto found = first_nonzero(host.view, DeviceKind::kCpu);
    ASSERT_TRUE(found);
    EXPECT_EQ((std::array{found->token, found->head, found->d}), (std::array{t, h, d}));
    EXPECT_EQ(found->value, 2);
  }
  set_element(host.view, 0, 0, 1, std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(first_nonzero(host.view, DeviceKind::kCpu)->d, 1);
}

INSTANTIATE_TEST_SUITE_P(DTypes, CountingTensors, testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace longspan
