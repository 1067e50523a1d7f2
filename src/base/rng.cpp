#include "base/rng.h"

#include <algorithm>
#include <array>

#include "base/backend.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/parallel.h"

namespace longspan {
namespace {

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
    auto four = four_normals(block, seed, stream);
    for (int64_t r = chunk * rows_per_chunk; r < end; ++r) {
      T* row = tensor.row<T>(r / tensor.heads, r % tensor.heads);
      for (int64_t d = 0; d < tensor.head_dim; ++d, ++element) {
        if (element / 4 != block) four = four_normals(block = element / 4, seed, stream);
        row[d] = convert<T>(four[element % 4]);
      }
    }
  });
}

}  // namespace

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

void fill_normal(const TensorView& tensor, uint64_t seed, uint64_t stream, const Device& device) {
  backend_of(device.kind).fill_normal(tensor, seed, stream, device.index);
}

}  // namespace longspan
