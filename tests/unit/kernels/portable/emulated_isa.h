// The primitives of the portable kernels on a CPU, each as the PTX ISA defines it (chapters mma fragments,
// ldmatrix, cp.async of version 9), written without regard to how the kernels use it.
#pragma once

#include <cmath>
#include <cstring>

#include "base/dtype.h"
#include "emulator.h"
#include "kernels/portable/isa/device.h"

namespace longspan::portable {

struct EmulatedIsa {
  static int thread() { return emulator::thread(); }
  static int block() { return emulator::block(); }
  static int opaque(int x) { return x; }
  static void sync() { emulator::sync_block(); }
  static void sync_warp() { emulator::sync_warp(); }

  static float shfl_xor(float x, int lanes) {
    struct Arguments {
      float x, got;
      int lanes;
    } mine{x, 0, lanes};
    emulator::meet("shfl", &mine, [](void* const(&all)[32]) {
      for (int lane = 0; lane < 32; ++lane) {
        auto& to = *static_cast<Arguments*>(all[lane]);
        to.got = static_cast<const Arguments*>(all[lane ^ to.lanes])->x;
      }
    });
    return mine.got;
  }

  static bool any(bool x) {
    struct Arguments {
      bool x, got;
    } mine{x, false};
    emulator::meet("vote", &mine, [](void* const(&all)[32]) {
      bool any = false;
      for (void* lane : all) any = any || static_cast<const Arguments*>(lane)->x;
      for (void* lane : all) static_cast<Arguments*>(lane)->got = any;
    });
    return mine.got;
  }

  static uint32_t shared_memory() { return emulator::shared_base(); }
  static void cp_async(uint32_t to, const void* from, bool there) {
    emulator::copy_async(to, there ? from : nullptr, 16);
  }
  static void cp_async_commit() { emulator::commit_group(); }
  template <int kLeft>
  static void cp_async_wait() {
    emulator::wait_groups(kLeft);
  }

  // "Threads 0-7, 8-15, 16-23, 24-31 hold the addresses of the rows of the first, second, third, fourth
  // matrix. Thread t gets elements 2 (t % 4) and 2 (t % 4) + 1 of row t / 4"; with .trans, of column t / 4.
  struct Matrices {
    uint32_t (&r)[4];
    uint16_t row[8];  // the one whose address this thread holds
  };
  static void ldmatrix_x4(uint32_t (&r)[4], uint32_t address) {
    Matrices mine{r, {}};
    emulator::read_shared(address, mine.row, sizeof(mine.row), true);
    emulator::meet("ldmatrix", &mine, [](void* const(&all)[32]) {
      for (int t = 0; t < 32; ++t)
        for (int matrix = 0; matrix < 4; ++matrix) {
          const uint16_t* row = static_cast<const Matrices*>(all[8 * matrix + t / 4])->row;
          static_cast<Matrices*>(all[t])->r[matrix] = row[2 * (t % 4)] | uint32_t{row[2 * (t % 4) + 1]} << 16;
        }
    });
  }
  static void ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t address) {
    Matrices mine{r, {}};
    emulator::read_shared(address, mine.row, sizeof(mine.row), true);
    emulator::meet("ldmatrix.trans", &mine, [](void* const(&all)[32]) {
      const auto element = [&](int matrix, int row, int column) {
        return uint32_t{static_cast<const Matrices*>(all[8 * matrix + row])->row[column]};
      };
      for (int t = 0; t < 32; ++t)
        for (int matrix = 0; matrix < 4; ++matrix)
          static_cast<Matrices*>(all[t])->r[matrix] =
              element(matrix, 2 * (t % 4), t / 4) | element(matrix, 2 * (t % 4) + 1, t / 4) << 16;
    });
  }
  static void st_shared(uint32_t to, uint32_t x) { emulator::write_shared(to, &x, sizeof(x)); }
  static void ld_shared(float& a, float& b, uint32_t from) {
    float both[2];
    emulator::read_shared(from, both, sizeof(both));
    a = both[0], b = both[1];
  }
  static uint32_t ld_shared(uint32_t from) {
    uint32_t x;
    emulator::read_shared(from, &x, sizeof(x));
    return x;
  }
  static Vector ld_shared_vector(uint32_t from) {
    Vector x;
    emulator::read_shared(from, &x, sizeof(x));
    return x;
  }

  // mma.m16n8k16. With group = lane / 4 and t = lane % 4:
  //   a0..a7: row group (a0 a1 a4 a5) or group + 8; column 2 t + i % 2, and 8 more from a4 on
  //   b0..b3: row 2 t + i % 2, and 8 more from b2 on; column group
  //   c0..c3: row group, and 8 more from c2 on; column 2 t + i % 2
  // Sums are fp32; in which order a tensor core adds is not defined.
  template <class Element>
  static void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    struct Arguments {
      float (&c)[4];
      const uint32_t (&a)[4];
      uint32_t b[2];
    } mine{c, a, {b0, b1}};
    emulator::meet("mma", &mine, [](void* const(&all)[32]) {
      float a[16][16], b[16][8], sum[16][8];
      for (int lane = 0; lane < 32; ++lane) {
        const auto& from = *static_cast<const Arguments*>(all[lane]);
        const int group = lane / 4, t = lane % 4;
        for (int i = 0; i < 8; i += 2) {
          const int row = i < 2 || (4 <= i && i < 6) ? group : group + 8, column = 2 * t + (i < 4 ? 0 : 8);
          unpack<Element>(from.a[i / 2], a[row][column], a[row][column + 1]);
        }
        for (int i = 0; i < 4; i += 2) {
          const int row = 2 * t + (i < 2 ? 0 : 8);
          unpack<Element>(from.b[i / 2], b[row][group], b[row + 1][group]);
        }
        for (int i = 0; i < 4; ++i) sum[i < 2 ? group : group + 8][2 * t + i % 2] = from.c[i];
      }
      for (int m = 0; m < 16; ++m)
        for (int k = 0; k < 16; ++k)
          for (int n = 0; n < 8; ++n) sum[m][n] += a[m][k] * b[k][n];
      for (int lane = 0; lane < 32; ++lane)
        for (int i = 0; i < 4; ++i)
          static_cast<Arguments*>(all[lane])->c[i] =
              sum[i < 2 ? lane / 4 : lane / 4 + 8][2 * (lane % 4) + i % 2];
    });
  }

  template <class Element>
  static uint32_t pack(float low, float high) {
    if constexpr (Element::kIsBf16) return to_bf16(low).bits | uint32_t{to_bf16(high).bits} << 16;
    return to_f16(low).bits | uint32_t{to_f16(high).bits} << 16;
  }
  template <class Element>
  static void unpack(uint32_t packed, float& low, float& high) {
    const auto first = static_cast<uint16_t>(packed), second = static_cast<uint16_t>(packed >> 16);
    if constexpr (Element::kIsBf16) {
      low = as_float(packed << 16), high = as_float(packed & 0xffff0000U);
    } else {
      low = to_float(f16{first}), high = to_float(f16{second});
    }
  }
  static float as_float(uint32_t x) {
    float y;
    std::memcpy(&y, &x, sizeof(y));
    return y;
  }
  static uint32_t as_bits(float x) {
    uint32_t y;
    std::memcpy(&y, &x, sizeof(y));
    return y;
  }
  static float exp2(float x) { return std::exp2(x); }
  static float log2(float x) { return std::log2(x); }
  static float fma(float a, float b, float c) { return std::fma(a, b, c); }

  static void add_four(float* sums, int lane, const float (&c)[4]) {
    for (int i = 0; i < 4; ++i) sums[4 * lane + i] += c[i];
  }
  static void sums_of(const float* sums, int lane, float (&c)[4][4]) {
    for (int i = 0; i < 16; ++i) c[i / 4][i % 4] = sums[4 * lane + i];
  }
  static void sums_of_lane(const float* sums, int lane, float (&c)[4]) {
    for (int i = 0; i < 4; ++i) c[i] = sums[4 * lane + i];
  }
  static int take(int32_t* counter) { return (*counter)++; }
  // Blocks run one after another, so nobody would ever come to change it.
  static void acquire(const int32_t* turn, int32_t value) {
    if (*turn != value) emulator::fail("waits for a turn that no earlier block gives");
  }
  static void release(int32_t* turn, int32_t value) { *turn = value; }
  static void fence() {}
};

}  // namespace longspan::portable
