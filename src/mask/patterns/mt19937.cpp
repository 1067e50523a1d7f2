// The Mersenne Twister and the draws that CPython's `random` derives from it.
#include <bit>

#include "base/error.h"
#include "mask/patterns/document_lengths.h"

namespace longspan {
namespace {

constexpr int kWords = 624, kOffset = 397;

}  // namespace

Mt19937::Mt19937(uint64_t seed) {
  // init_by_array over the seed's 32-bit words, lowest first; a small seed is one word.
  const uint32_t key[] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  const int key_words = key[1] != 0 ? 2 : 1;
  state_[0] = 19650218u;
  for (uint32_t i = 1; i < kWords; ++i) state_[i] = 1812433253u * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
  int i = 1, j = 0;
  auto step = [&] {
    if (++i == kWords) {
      state_[0] = state_[kWords - 1];
      i = 1;
    }
  };
  for (int n = 0; n < kWords; ++n) {
    const uint32_t mixed = (state_[i - 1] ^ (state_[i - 1] >> 30)) * 1664525u;
    state_[i] = (state_[i] ^ mixed) + key[j] + static_cast<uint32_t>(j);
    step();
    j = (j + 1) % key_words;
  }
  for (int n = 0; n < kWords - 1; ++n) {
    const uint32_t mixed = (state_[i - 1] ^ (state_[i - 1] >> 30)) * 1566083941u;
    state_[i] = (state_[i] ^ mixed) - static_cast<uint32_t>(i);
    step();
  }
  state_[0] = 0x80000000u;
}

uint32_t Mt19937::next() {
  if (position_ == kWords) {
    for (int i = 0; i < kWords; ++i) {
      const uint32_t y = (state_[i] & 0x80000000u) | (state_[(i + 1) % kWords] & 0x7fffffffu);
      state_[i] = state_[(i + kOffset) % kWords] ^ (y >> 1) ^ ((y & 1u) * 0x9908b0dfu);
    }
    position_ = 0;
    ++refills_;
  }
  uint32_t y = state_[position_++];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}

double Mt19937::random() {
  const uint32_t a = next() >> 5, b = next() >> 6;
  return (a * 67108864.0 + b) / 9007199254740992.0;
}

int64_t Mt19937::randbelow(int64_t n) {
  LONGSPAN_CHECK(n > 0, "randbelow({}): must be at least 1", n);
  const int bits = std::bit_width(static_cast<uint64_t>(n));
  for (;;) {
    // CPython fills the low word first and takes the top bits of the last.
    uint64_t draw = 0;
    if (bits <= 32) {
      draw = next() >> (32 - bits);
    } else {
      draw = next();
      draw |= static_cast<uint64_t>(next() >> (64 - bits)) << 32;
    }
    if (draw < static_cast<uint64_t>(n)) return static_cast<int64_t>(draw);
  }
}

int64_t Mt19937::randint(int64_t a, int64_t b) {
  LONGSPAN_CHECK(a <= b, "randint({}, {}): must not be empty", a, b);
  return a + randbelow(b - a + 1);
}

}  // namespace longspan
