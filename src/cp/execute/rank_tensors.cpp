#include "cp/execute/rank_tensors.h"

#include <algorithm>

#include "base/error.h"

namespace longspan {
namespace {

TensorView make(std::vector<Buffer>& buffers, int64_t tokens, int64_t heads, int64_t head_dim, DType dtype,
                const Device& device) {
  TensorView view = TensorView::contiguous(nullptr, dtype, tokens, heads, head_dim);
  buffers.emplace_back(std::max<size_t>(view.bytes(), 256), device);
  view.data = buffers.back().data();
  return view;
}

// Calls copy(row address in `whole`, row address in `part`, bytes) for each range.
template <class Copy>
void for_each_range(const TensorView& whole, const TensorView& part, const Ranges& ranges, const Copy& copy) {
  const size_t row_bytes = static_cast<size_t>(whole.heads * whole.head_dim) * size_of(whole.dtype);
  LONGSPAN_CHECK(whole.token_stride == whole.heads * whole.head_dim && whole.head_stride == whole.head_dim,
                 "whole tensors are dense");
  LONGSPAN_CHECK(whole.dtype == part.dtype, "whole tensors of {}, ranks' of {}", name_of(whole.dtype),
                 name_of(part.dtype));
  size_t at = 0;
  for (const Range& range : ranges) {
    const size_t bytes = static_cast<size_t>(range.size()) * row_bytes;
    if (bytes > 0) {
      copy(static_cast<char*>(whole.data) + static_cast<size_t>(range.begin) * row_bytes,
           static_cast<char*>(part.data) + at, bytes);
    }
    at += bytes;
  }
}

}  // namespace

RankTensors::RankTensors(const Problem& p, const Ranges& owned, const Device& device)
    : ranges(owned), kind(device.kind) {
  const int64_t tokens = count(owned);
  q = make(buffers, tokens, p.heads_q, p.head_dim, p.dtype, device);
  k = make(buffers, tokens, p.heads_kv, p.head_dim, p.dtype, device);
  v = make(buffers, tokens, p.heads_kv, p.dim_v(), p.dtype, device);
  o = make(buffers, tokens, p.heads_q, p.dim_v(), p.dtype, device);
  lse = static_cast<float*>(make(buffers, tokens, p.heads_q, 1, DType::kF32, device).data);
}

void RankTensors::add_gradients(const Problem& p, const Device& device) {
  if (dq.data != nullptr) return;
  dout = make(buffers, q.tokens, p.heads_q, p.dim_v(), p.dtype, device);
  if (p.lse_gradient)
    dlse = static_cast<float*>(make(buffers, q.tokens, p.heads_q, 1, DType::kF32, device).data);
  dq = make(buffers, q.tokens, p.heads_q, p.head_dim, p.dtype, device);
  dk = make(buffers, q.tokens, p.heads_kv, p.head_dim, p.dtype, device);
  dv = make(buffers, q.tokens, p.heads_kv, p.dim_v(), p.dtype, device);
}

void RankTensors::take_inputs(const TensorView& whole_q, const TensorView& whole_k,
                              const TensorView& whole_v) {
  rows_to_part(whole_q, q, ranges, kind);
  rows_to_part(whole_k, k, ranges, kind);
  rows_to_part(whole_v, v, ranges, kind);
}

void RankTensors::take_gradients(const TensorView& whole_dout, const float* whole_dlse) {
  rows_to_part(whole_dout, dout, ranges, kind);
  if (dlse == nullptr) return;
  if (whole_dlse == nullptr) {
    fill_bytes(dlse, kind, 0, static_cast<size_t>(q.tokens * q.heads) * sizeof(float));
  } else {
    lse_to_part(whole_dlse, dlse, whole_dout.tokens, q.heads, ranges, kind);
  }
}

void rows_to_part(const TensorView& whole, const TensorView& part, const Ranges& ranges, DeviceKind kind) {
  for_each_range(whole, part, ranges, [&](const char* in_whole, char* in_part, size_t bytes) {
    copy_bytes(in_part, kind, in_whole, kind, bytes);
  });
}

void rows_to_whole(const TensorView& part, const TensorView& whole, const Ranges& ranges, DeviceKind kind) {
  for_each_range(whole, part, ranges, [&](char* in_whole, const char* in_part, size_t bytes) {
    copy_bytes(in_whole, kind, in_part, kind, bytes);
  });
}

void lse_to_part(const float* whole, float* part, int64_t tokens, int64_t heads, const Ranges& ranges,
                 DeviceKind kind) {
  const size_t from = static_cast<size_t>(tokens) * sizeof(float);
  const size_t to = static_cast<size_t>(count(ranges)) * sizeof(float);
  for (const Range& range : ranges) {
    copy_rows(part, kind, to, whole + range.begin, kind, from,
              static_cast<size_t>(range.size()) * sizeof(float), static_cast<size_t>(heads));
    part += range.size();
  }
}

void lse_to_whole(const float* part, float* whole, int64_t tokens, int64_t heads, const Ranges& ranges,
                  DeviceKind kind) {
  const size_t from = static_cast<size_t>(count(ranges)) * sizeof(float);
  const size_t to = static_cast<size_t>(tokens) * sizeof(float);
  for (const Range& range : ranges) {
    copy_rows(whole + range.begin, kind, to, part, kind, from,
              static_cast<size_t>(range.size()) * sizeof(float), static_cast<size_t>(heads));
    part += range.size();
  }
}

}  // namespace longspan
