// The emulated primitives: each against what the PTX ISA says, and each fault that the emulation must find.
#include <array>
#include <cmath>
#include <vector>

#include <gmock/gmock.h>

#include "emulated_isa.h"

namespace longspan::portable {
namespace {

using Isa = EmulatedIsa;

// Small integers, exact in bf16 and f16.
float element(int row, int column) {
  return static_cast<float>((row * 7 + column * 3) % 11 - 5);
}

uint32_t address(uint32_t offset) {
  return Isa::shared_memory() + offset;
}

std::string failure_of(int threads, uint32_t shared_bytes, const std::function<void()>& kernel) {
  try {
    run_grid(1, threads, shared_bytes, kernel);
  } catch (const EmulationError& error) {
    return error.what();
  }
  return "";
}

// The fragment tables of the PTX ISA for lane 5 (group 1, thread 1 of the group), written out by hand.
TEST(EmulatedIsa, MmaTakesFragmentsAsPtxLaysThemOut) {
  for (int hot = 0; hot < 8; ++hot) {
    constexpr std::array<std::pair<int, int>, 8> a_of_lane5 = {
        {{1, 2}, {1, 3}, {9, 2}, {9, 3}, {1, 10}, {1, 11}, {9, 10}, {9, 11}}};
    constexpr std::array<std::pair<int, int>, 4> b_of_lane5 = {{{2, 1}, {3, 1}, {10, 1}, {11, 1}}};
    std::vector<float> c(16 * 8, 0);
    run_grid(1, 32, 16, [&] {
      const int lane = Isa::thread();
      // a is zero but for one element of lane 5; b(k, n) = 100 k + n is not exact in bf16, so 8 k + n.
      uint32_t a[4] = {};
      if (lane == 5) a[hot / 2] = hot % 2 == 0 ? Isa::pack<Bf16>(1, 0) : Isa::pack<Bf16>(0, 1);
      const int group = lane / 4, t = lane % 4;
      const auto b = [&](int k) { return Isa::pack<Bf16>(8.0f * k + group, 8.0f * (k + 1) + group); };
      float sum[4] = {};
      Isa::mma<Bf16>(sum, a, b(2 * t), b(2 * t + 8));
      for (int i = 0; i < 4; ++i) c[(group + i / 2 * 8) * 8 + 2 * t + i % 2] = sum[i];
    });
    const auto [row, column] = a_of_lane5[static_cast<size_t>(hot)];
    for (int m = 0; m < 16; ++m)
      for (int n = 0; n < 8; ++n)
        EXPECT_EQ(c[m * 8 + n], m == row ? 8 * column + n : 0) << "a" << hot << " at " << m << ", " << n;
    if (hot >= 4) continue;
    // One element of b in lane 5 meets the column of a that is its row.
    run_grid(1, 32, 16, [&] {
      const int lane = Isa::thread(), group = lane / 4, t = lane % 4;
      uint32_t b[2] = {};
      if (lane == 5) b[hot / 2] = hot % 2 == 0 ? Isa::pack<F16>(1, 0) : Isa::pack<F16>(0, 1);
      const auto a = [&](int m, int k) { return Isa::pack<F16>(16.0f * m + k, 16.0f * m + k + 1); };
      const uint32_t mine[4] = {a(group, 2 * t), a(group + 8, 2 * t), a(group, 2 * t + 8),
                                a(group + 8, 2 * t + 8)};
      float sum[4] = {};
      Isa::mma<F16>(sum, mine, b[0], b[1]);
      for (int i = 0; i < 4; ++i) c[(group + i / 2 * 8) * 8 + 2 * t + i % 2] = sum[i];
    });
    const auto [k, n_hot] = b_of_lane5[static_cast<size_t>(hot)];
    for (int m = 0; m < 16; ++m)
      for (int n = 0; n < 8; ++n) EXPECT_EQ(c[m * 8 + n], n == n_hot ? 16 * m + k : 0) << "b" << hot;
  }
}

TEST(EmulatedIsa, MmaAddsAProduct) {
  std::vector<float> got(16 * 8);
  run_grid(1, 32, 16, [&] {
    const int lane = Isa::thread(), group = lane / 4, t = 2 * (lane % 4);
    const auto a = [&](int m, int k) { return Isa::pack<Bf16>(element(m, k), element(m, k + 1)); };
    const auto b = [&](int k, int n) { return Isa::pack<Bf16>(element(k, n + 40), element(k + 1, n + 40)); };
    const uint32_t mine[4] = {a(group, t), a(group + 8, t), a(group, t + 8), a(group + 8, t + 8)};
    float c[4] = {1, 2, 3, 4};
    Isa::mma<Bf16>(c, mine, b(t, group), b(t + 8, group));
    for (int i = 0; i < 4; ++i) got[(group + i / 2 * 8) * 8 + t + i % 2] = c[i] - static_cast<float>(i + 1);
  });
  for (int m = 0; m < 16; ++m)
    for (int n = 0; n < 8; ++n) {
      float sum = 0;
      for (int k = 0; k < 16; ++k) sum += element(m, k) * element(k, n + 40);
      EXPECT_EQ(got[m * 8 + n], sum);
    }
}

// Matrix j has its row r at (4 j + r) * 16 bytes of a permuted order; element c of it is 100 j + 10 r + c.
TEST(EmulatedIsa, LdmatrixGivesRowsOrColumns) {
  for (const bool trans : {false, true}) {
    run_grid(1, 32, 32 * 16, [&] {
      const uint32_t lane = static_cast<uint32_t>(Isa::thread()), place = 31 - lane;
      for (uint32_t c = 0; c < 8; c += 2) {
        const uint32_t first = 100 * (lane / 8) + 10 * (lane % 8) + c;
        Isa::st_shared(address(place * 16 + c * 2), first | (first + 1) << 16);
      }
      Isa::sync();
      uint32_t r[4];
      trans ? Isa::ldmatrix_x4_trans(r, address(place * 16)) : Isa::ldmatrix_x4(r, address(place * 16));
      for (uint32_t j = 0; j < 4; ++j) {
        const uint32_t outer = lane / 4, inner = 2 * (lane % 4);
        const uint32_t low = 100 * j + (trans ? 10 * inner + outer : 10 * outer + inner);
        const uint32_t high = trans ? low + 10 : low + 1;
        EXPECT_EQ(r[j], low | high << 16) << "lane " << lane << ", matrix " << j;
      }
    });
  }
}

TEST(EmulatedIsa, ShufflesExchange) {
  run_grid(2, 64, 16, [] {
    const int lane = Isa::thread() % 32;
    for (const int lanes : {1, 2, 16, 31})
      EXPECT_EQ(Isa::shfl_xor(static_cast<float>(lane), lanes), static_cast<float>(lane ^ lanes));
  });
}

TEST(EmulatedIsa, CpAsyncCopiesInGroupsAndFillsWithZeros) {
  alignas(16) std::array<float, 8> from = {1, 2, 3, 4, 5, 6, 7, 8};
  run_grid(1, 32, 32 * 48, [&] {
    const uint32_t to = address(static_cast<uint32_t>(Isa::thread()) * 48);
    Isa::cp_async(to, from.data(), true);
    Isa::cp_async_commit();
    Isa::cp_async(to + 16, from.data() + 4, true);
    Isa::cp_async_commit();
    Isa::cp_async(to + 32, from.data() + 4, false);
    Isa::cp_async_commit();
    float a, b;
    Isa::cp_async_wait<2>();
    Isa::ld_shared(a, b, to + 8);
    EXPECT_EQ(a, 3);
    Isa::cp_async_wait<0>();
    Isa::ld_shared(a, b, to + 16);
    EXPECT_EQ(b, 6);
    Isa::ld_shared(a, b, to + 40);
    EXPECT_EQ(b, 0);
  });
}

TEST(EmulatedIsa, PackRoundsToNearestAndUnpackInverts) {
  float low, high;
  Isa::unpack<Bf16>(Isa::pack<Bf16>(1.00390625f, -2.5f), low, high);  // half way: to even
  EXPECT_EQ(low, 1);
  EXPECT_EQ(high, -2.5f);
  Isa::unpack<F16>(Isa::pack<F16>(65504, 0x1p-24f), low, high);
  EXPECT_EQ(low, 65504);
  EXPECT_EQ(high, 0x1p-24f);
}

using testing::HasSubstr;

TEST(EmulatorFaults, FindsReadsOfAsyncCopiesBeforeTheirWait) {
  alignas(16) static std::array<float, 4> from = {};
  EXPECT_THAT(failure_of(32, 1024,
                         [] {
                           if (Isa::thread() == 0) Isa::cp_async(address(0), from.data(), true);
                           Isa::cp_async_commit();
                           Isa::sync();
                           Isa::ld_shared(address(0));
                         }),
              HasSubstr("before the wait for its cp.async"));
  EXPECT_THAT(failure_of(32, 1024,
                         [] {
                           if (Isa::thread() == 0) Isa::cp_async(address(0), from.data(), true);
                           Isa::cp_async_commit();
                           Isa::cp_async_wait<0>();
                           if (Isa::thread() == 9) Isa::ld_shared(address(0));
                         }),
              HasSubstr("no barrier in between"));
}

TEST(EmulatorFaults, FindsRacesOfWarpsAndOfLanes) {
  const auto write_then_read = [](int writer, int reader, void (*barrier)()) {
    return failure_of(64, 1024, [=] {
      if (Isa::thread() == writer) Isa::st_shared(address(64), 1);
      barrier();
      if (Isa::thread() == reader) Isa::ld_shared(address(64));
    });
  };
  EXPECT_THAT(write_then_read(0, 1, [] {}), HasSubstr("read of 64, which thread 0 wrote"));
  EXPECT_EQ(write_then_read(0, 1, Isa::sync_warp), "");
  EXPECT_THAT(write_then_read(0, 40, Isa::sync_warp), HasSubstr("no barrier"));
  EXPECT_EQ(write_then_read(0, 40, Isa::sync), "");
  EXPECT_EQ(write_then_read(3, 3, [] {}), "");
  EXPECT_THAT(failure_of(64, 1024,
                         [] {
                           if (Isa::thread() == 0) Isa::st_shared(address(64), 1);
                           Isa::sync();
                           Isa::ld_shared(address(64));
                           if (Isa::thread() == 63) Isa::st_shared(address(64), 2);
                         }),
              HasSubstr("no barrier in between"));
  EXPECT_THAT(failure_of(64, 1024, [] { Isa::st_shared(address(64), 1); }),
              HasSubstr("which thread 0 wrote"));
}

TEST(EmulatorFaults, FindsWrongAddresses) {
  EXPECT_THAT(failure_of(32, 64, [] { Isa::st_shared(address(64), 1); }), HasSubstr("shared memory has 64"));
  EXPECT_THAT(failure_of(32, 64, [] { Isa::st_shared(address(62), 1); }), HasSubstr("shared memory has 64"));
  EXPECT_THAT(failure_of(32, 64, [] { Isa::ld_shared(Isa::shared_memory() - 4); }), HasSubstr("at -4"));
  EXPECT_THAT(failure_of(32, 64, [] { Isa::st_shared(address(2), 1); }), HasSubstr("misaligned"));
  EXPECT_THAT(failure_of(32, 64, [] { Isa::ld_shared(address(0)); }), HasSubstr("nobody wrote"));
}

TEST(EmulatorFaults, FindsThreadsThatDoNotCome) {
  EXPECT_THAT(failure_of(64, 16,
                         [] {
                           if (Isa::thread() != 5) Isa::sync();
                         }),
              HasSubstr("no thread of the block can continue"));
  EXPECT_THAT(failure_of(32, 16,
                         [] {
                           if (Isa::thread() < 16)
                             Isa::shfl_xor(1, 1);
                           else
                             Isa::sync_warp();
                         }),
              HasSubstr("lanes of a warp are at"));
}

}  // namespace
}  // namespace longspan::portable
