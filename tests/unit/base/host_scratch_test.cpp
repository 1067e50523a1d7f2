#include "base/host_scratch.h"

#include <cstring>

#include "gtest/gtest.h"

namespace longspan {
namespace {

constexpr size_t kMegabyte = size_t{1} << 20;

TEST(HostScratch, ReusesTheSmallestThatIsLargeEnough) {
  HostScratch::release_all();
  void *small = nullptr, *large = nullptr;
  {
    const HostScratch a(20 * kMegabyte), b(40 * kMegabyte);
    std::memset(a.data(), 1, 20 * kMegabyte);
    std::memset(b.data(), 2, 40 * kMegabyte);
    small = a.data();
    large = b.data();
  }
  const HostScratch first(15 * kMegabyte), second(15 * kMegabyte), third(15 * kMegabyte);
  EXPECT_EQ(first.data(), small);
  EXPECT_EQ(second.data(), large);
  EXPECT_NE(third.data(), small);
  EXPECT_NE(third.data(), large);
}

TEST(HostScratch, MovesAndMayBeEmpty) {
  HostScratch empty, filled(1);
  void* const data = filled.data();
  empty = std::move(filled);
  EXPECT_EQ(empty.data(), data);
  const HostScratch moved(std::move(empty));
  EXPECT_EQ(moved.data(), data);
}

}  // namespace
}  // namespace longspan
