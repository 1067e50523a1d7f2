#include "base/buffer.h"

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/backend.h"
#include "base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace longspan {
namespace {

TEST(Buffer, IsAlignedAndWritable) {
  for (size_t bytes : {1, 255, 256, 257, 100000}) {
    Buffer buffer(bytes, cpu_device());
    ASSERT_NE(buffer.data(), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 256, 0u);
    EXPECT_EQ(buffer.bytes(), bytes);
    std::memset(buffer.data(), 1, bytes);
  }
}

TEST(Buffer, EmptyHoldsNothing) {
  EXPECT_EQ(Buffer().data(), nullptr);
  EXPECT_EQ(Buffer(0, cpu_device()).data(), nullptr);
}

TEST(Buffer, Moves) {
  Buffer a(100, cpu_device());
  void* data = a.data();
  Buffer b(std::move(a));
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(a.data(), nullptr);
  Buffer c;
  c = std::move(b);
  EXPECT_EQ(c.data(), data);
  c.reset();
  EXPECT_EQ(c.data(), nullptr);
  EXPECT_EQ(c.bytes(), 0u);
  c.reset();
}

TEST(Buffer, SaysHowMuchWasAskedAndIsFree) {
  for (size_t bytes : {size_t{1} << 60, SIZE_MAX, SIZE_MAX - 255}) {
    try {
      Buffer buffer(bytes, cpu_device());
      FAIL() << bytes << " bytes were allocated";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kOutOfMemory);
      EXPECT_THAT(error.what(), testing::MatchesRegex(R"(out of memory \(needs .* GiB, .* free\))"));
    }
  }
}

TEST(Buffer, CopiesAndFills) {
  Buffer a(4 * sizeof(float), cpu_device()), b(4 * sizeof(float), cpu_device());
  fill_bytes(a.data(), a.kind(), 0xff, a.bytes());
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(std::isnan(a.as<float>()[i]));
  for (int i = 0; i < 4; ++i) a.as<float>()[i] = static_cast<float>(i);
  copy_bytes(b.data(), b.kind(), a.data(), a.kind(), a.bytes());
  for (int i = 0; i < 4; ++i) EXPECT_EQ(b.as<float>()[i], static_cast<float>(i));
}

TEST(Buffer, AKindThatTheBuildLacksIsAnInputError) {
  if (cuda_backend() != nullptr) GTEST_SKIP() << "this build has CUDA";
  Device device;
  device.kind = DeviceKind::kCuda;
  EXPECT_THAT([&] { Buffer(1, device); }, testing::ThrowsMessage<Error>(testing::HasSubstr("has no CUDA")));
}

}  // namespace
}  // namespace longspan
