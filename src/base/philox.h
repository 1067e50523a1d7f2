// The arithmetic of the counter-based generator, shared by the CPU and GPU code.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define LONGSPAN_HOST_DEVICE __host__ __device__
#else
#define LONGSPAN_HOST_DEVICE
#endif

namespace longspan {

// Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
LONGSPAN_HOST_DEVICE inline std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter,
                                                               std::array<uint32_t, 2> key) {
  constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;  // golden ratio, sqrt(3) - 1
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * counter[0];
    const uint64_t product1 = uint64_t{kMultiplier1} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return counter;
}

// Two independent standard normals from two 32-bit words (Box and Muller). The computation is in double so
// that last-bit differences between math libraries rarely survive the rounding to float. The first uniform is
// never 0, so its logarithm is finite.
LONGSPAN_HOST_DEVICE inline std::array<float, 2> box_muller(uint32_t a, uint32_t b) {
  constexpr double kUnit = 0x1p-32, kTwoPi = 6.283185307179586;
  const double radius = sqrt(-2 * log((a + 0.5) * kUnit));
  const double angle = kTwoPi * (b * kUnit);
  return {static_cast<float>(radius * cos(angle)), static_cast<float>(radius * sin(angle))};
}

// Numbers 4 * block .. 4 * block + 3 of a stream of normals.
LONGSPAN_HOST_DEVICE inline std::array<float, 4> four_normals(uint64_t block, uint64_t seed,
                                                              uint64_t stream) {
  const std::array<uint32_t, 4> words =
      philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                  static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const std::array<float, 2> low = box_muller(words[0], words[1]), high = box_muller(words[2], words[3]);
  return {low[0], low[1], high[0], high[1]};
}

}  // namespace longspan
