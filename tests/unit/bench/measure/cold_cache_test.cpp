// Cache eviction keeps the data, and the CPU testbed measures peak memory.
#include "bench/measure/cold_cache.h"

#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/buffer.h"
#include "bench/measure/cpu_testbed.h"

namespace longspan::bench {
namespace {

// A test without timing cannot show that lines leave the caches, but it can show that their data stay.
TEST(ColdCache, EvictionKeepsTheContent) {
  std::vector<int> data(3 << 20);
  std::iota(data.begin(), data.end(), 7);
  const std::vector<int> copy = data;
  // Unaligned ends, an empty span, and more than one chunk.
  char* bytes = reinterpret_cast<char*>(data.data());
  const std::vector<MemorySpan> spans{{bytes + 3, 1}, {bytes + 64, 0}, {bytes, data.size() * sizeof(int)}};
  evict_from_caches(spans, 1 << 20);
  EXPECT_EQ(data, copy);
  EXPECT_THAT(std::string(eviction_method()), testing::AnyOf("clflushopt", "clflush", "dc civac", "sweep"));
}

TEST(CpuTestbed, MeasuresThePeakOfTouchedMemory) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer keeps four bytes of its own for each byte touched";
#endif
  const auto testbed = make_cpu_testbed(cpu_device(), nullptr);
  constexpr size_t kBytes = size_t{64} << 20;
  Buffer before(kBytes, cpu_device());
  fill_bytes(before.data(), DeviceKind::kCpu, 1, kBytes);
  testbed->begin_peak();
  {
    Buffer within(kBytes, cpu_device());
    fill_bytes(within.data(), DeviceKind::kCpu, 1, kBytes);
  }
  const double peak = static_cast<double>(testbed->end_peak());
  EXPECT_GT(peak, 0.95 * kBytes);
  EXPECT_LT(peak, 1.25 * kBytes);

  testbed->begin_peak();
  EXPECT_LT(testbed->end_peak(), kBytes / 8);  // the earlier peak does not count
}

}  // namespace
}  // namespace longspan::bench
