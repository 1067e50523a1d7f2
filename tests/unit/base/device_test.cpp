
#include "base/parallel.h"
#include "gtest/gtest.h"
#include "longspan/base.h"

namespace longspan {
namespace {

TEST(Device, TheCpuIsDescribed) {
  const Device cpu = cpu_device();
  EXPECT_EQ(cpu.kind, DeviceKind::kCpu);
  EXPECT_FALSE(cpu.name.empty());
  EXPECT_EQ(cpu.name.find('\n'), std::string::npos);
  EXPECT_GE(cpu.units, 1);
  EXPECT_EQ(cpu.capability, 0);
  EXPECT_GT(cpu.memory_bytes, size_t{64} << 20);
  EXPECT_LT(cpu.cache_bytes, cpu.memory_bytes);
}

TEST(Device, TheCpuComesFirstAndTheRestAreCuda) {
  const auto all = devices();
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all[0].kind, DeviceKind::kCpu);
  for (size_t i = 1; i < all.size(); ++i) {
    EXPECT_EQ(all[i].kind, DeviceKind::kCuda);
    EXPECT_GT(all[i].units, 0);
    EXPECT_GE(all[i].capability, 50);
  }
}

}  // namespace
}  // namespace longspan
