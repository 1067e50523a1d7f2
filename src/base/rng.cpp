#include "base/rng.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/parallel.h"

namespace longspan {
namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;  // golden ratio, sqrt(3) - 1
constexpr int kRounds = 10;

// Four normals: numbers 4 * block .. 4 * block + 3 of the stream.
std::array<float, 4> normals(uint64_t block, uint64_t seed, uint64_t stream) {
  const auto words = philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                                 static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
                                {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const auto low = box_muller(words[0], words[1]);
  const auto high = box_muller(words[2], words[3]);
  return {low[0], low[1], high[0], high[1]};
}

template <class T>
T convert(float x) {
  if constexpr (std::is_same_v<T, bf16>) {
    return to_bf16(x);
  } else if constexpr (std::is_same_v<T, f16>) {
    return to_f16(x);
  } else {
    return static_cast<T>(x);
  }
}

template <class T>
void fill_rows(const TensorView& tensor, uint64_t seed, uint64_t stream) {
  const int64_t rows = tensor.tokens * tensor.heads;
  const int64_t rows_per_chunk = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, tensor.head_dim));
  const int64_t chunks = (rows + rows_per_chunk - 1) / rows_per_chunk;
  parallel_for(chunks, [&](int64_t chunk, int) {
    const int64_t end = std::min(rows, (chunk + 1) * rows_per_chunk);
    uint64_t element = static_cast<uint64_t>(chunk * rows_per_chunk * tensor.head_dim);
    uint64_t block = element / 4;
    auto four = normals(block, seed, stream);
    for (int64_t r = chunk * rows_per_chunk; r < end; ++r) {
      T* row = tensor.row<T>(r / tensor.heads, r % tensor.heads);
      for (int64_t d = 0; d < tensor.head_dim; ++d, ++element) {
        if (element / 4 != block) four = normals(block = element / 4, seed, stream);
        row[d] = convert<T>(four[element % 4]);
      }
    }
  });
}

}  // namespace

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * counter[0];
    const uint64_t product1 = uint64_t{kMultiplier1} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return counter;
}

// In double, so that a last-bit difference between two machines' libraries seldom survives the rounding to
// float. The first uniform is never 0, so that its logarithm is finite.
std::array<float, 2> box_muller(uint32_t a, uint32_t b) {
  constexpr double kUnit = 0x1p-32;
  const double radius = std::sqrt(-2 * std::log((a + 0.5) * kUnit));
  const double angle = 2 * std::numbers::pi * (b * kUnit);
  return {static_cast<float>(radius * std::cos(angle)), static_cast<float>(radius * std::sin(angle))};
}

void fill_normal(const TensorView& tensor, uint64_t seed, uint64_t stream) {
  switch (tensor.dtype) {
    case DType::kF32:
      return fill_rows<float>(tensor, seed, stream);
    case DType::kBF16:
      return fill_rows<bf16>(tensor, seed, stream);
    case DType::kF16:
      return fill_rows<f16>(tensor, seed, stream);
    case DType::kF64:
      return fill_rows<double>(tensor, seed, stream);
  }
  LONGSPAN_CHECK(false, "dtype {} is unknown", static_cast<int>(tensor.dtype));
}

}  // namespace longspan
