#include "attention/oracle/counting_tensors.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <vector>

#include "attention/element.h"
#include "attention/oracle/slot_sums.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/parallel.h"
#ifdef LONGSPAN_WITH_CUDA
#include "attention/oracle/counting_tensors_cuda.h"
#endif

namespace longspan {
namespace {

// Calls body(token) for each token, in parallel.
template <class Body>
void for_each_token(const TensorView& tensor, Body body) {
  parallel_for((tensor.tokens + kCheckedTokens - 1) / kCheckedTokens, [&](int64_t chunk, int) {
    const int64_t end = std::min(tensor.tokens, (chunk + 1) * kCheckedTokens);
    for (int64_t t = chunk * kCheckedTokens; t < end; ++t) body(t);
  });
}

void zero_row(const TensorView& tensor, int64_t token, int64_t head) {
  std::memset(tensor.row_address(token, head), 0,
              static_cast<size_t>(tensor.head_dim) * size_of(tensor.dtype));
}

bool on_gpu(const TensorView& tensor, DeviceKind kind) {
  if (kind == DeviceKind::kCpu) return false;
  LONGSPAN_CHECK(
      tensor.head_stride == tensor.head_dim && tensor.token_stride == tensor.heads * tensor.head_dim,
      "only dense tensors are counted on a GPU; strides are {} and {}", tensor.token_stride,
      tensor.head_stride);
  return true;
}

}  // namespace

void write_zero(const TensorView& tensor, DeviceKind kind) {
  fill_bytes(tensor.data, kind, 0, tensor.bytes());
}

void write_slots(const TensorView& tensor, DeviceKind kind, int64_t first, int64_t slots) {
  LONGSPAN_CHECK(first + slots <= tensor.head_dim, "{} slots from {} in {}", slots, first, tensor.head_dim);
#ifdef LONGSPAN_WITH_CUDA
  if (on_gpu(tensor, kind)) return cuda::write_slots(tensor, first, slots);
#else
  on_gpu(tensor, kind);
#endif
  for_each_token(tensor, [&](int64_t t) {
    for (int64_t h = 0; h < tensor.heads; ++h) {
      zero_row(tensor, t, h);
      for (int64_t d = 0; d < first; ++d) set_element(tensor, t, h, d, 1);
      for (int slot_kind = 0; slot_kind < kSlotKinds; ++slot_kind) {
        set_element(tensor, t, h, first + slot_of(t, h, slot_kind, slots), 1);
      }
    }
  });
}

void write_first_elements(const TensorView& tensor, DeviceKind kind,
                          const std::function<double(int64_t token, int64_t head)>& value) {
#ifdef LONGSPAN_WITH_CUDA
  if (on_gpu(tensor, kind)) {
    std::vector<double> values(static_cast<size_t>(tensor.tokens * tensor.heads));
    for_each_token(tensor, [&](int64_t t) {
      for (int64_t h = 0; h < tensor.heads; ++h)
        values[static_cast<size_t>(t * tensor.heads + h)] = value(t, h);
    });
    return cuda::write_first_elements(tensor, values);
  }
#else
  on_gpu(tensor, kind);
#endif
  for_each_token(tensor, [&](int64_t t) {
    for (int64_t h = 0; h < tensor.heads; ++h) {
      zero_row(tensor, t, h);
      set_element(tensor, t, h, 0, value(t, h));
    }
  });
}

std::optional<FoundElement> first_nonzero(const TensorView& tensor, DeviceKind kind) {
#ifdef LONGSPAN_WITH_CUDA
  if (on_gpu(tensor, kind)) {
    const int64_t at = cuda::first_nonzero(tensor);
    if (at < 0) return std::nullopt;
    const int64_t row = at / tensor.head_dim;
    std::vector<unsigned char> bytes(size_of(tensor.dtype));
    copy_bytes(bytes.data(), DeviceKind::kCpu,
               static_cast<const unsigned char*>(tensor.data) + static_cast<size_t>(at) * bytes.size(), kind,
               bytes.size());
    const TensorView one = TensorView::contiguous(bytes.data(), tensor.dtype, 1, 1, 1);
    return FoundElement{row / tensor.heads, row % tensor.heads, at % tensor.head_dim,
                        get_element(one, 0, 0, 0)};
  }
#else
  on_gpu(tensor, kind);
#endif
  std::atomic<int64_t> first = std::numeric_limits<int64_t>::max();  // the first token with a nonzero element
  for_each_token(tensor, [&](int64_t t) {
    if (t > first.load(std::memory_order_relaxed)) return;
    std::vector<double> row(static_cast<size_t>(tensor.head_dim));
    for (int64_t h = 0; h < tensor.heads; ++h) {
      load_row(tensor, t, h, row.data());
      if (std::all_of(row.begin(), row.end(), [](double x) { return x == 0; })) continue;
      int64_t before = first.load();
      while (t < before && !first.compare_exchange_weak(before, t)) {
      }
      return;
    }
  });
  if (first == std::numeric_limits<int64_t>::max()) return std::nullopt;
  for (int64_t h = 0; h < tensor.heads; ++h) {
    for (int64_t d = 0; d < tensor.head_dim; ++d) {
      const double x = get_element(tensor, first, h, d);
      if (x != 0) return FoundElement{first, h, d, x};
    }
  }
  return std::nullopt;
}

}  // namespace longspan
