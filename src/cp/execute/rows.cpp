#include "cp/execute/rows.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "attention/merge.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/parallel.h"

namespace longspan {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kRowsPerTask = 64;

// A view of the tensor from row `row` on.
TensorView at(const Rows& rows, int64_t row) {
  TensorView view = rows.tensor;
  view.data =
      static_cast<char*>(view.data) + row * view.token_stride * static_cast<int64_t>(size_of(view.dtype));
  return view;
}

// Calls body(row, head) for each of `rows` rows of `heads` heads, on all threads.
template <class Body>
void for_each_row(int64_t rows, int64_t heads, const Body& body) {
  const int64_t tasks = (rows + kRowsPerTask - 1) / kRowsPerTask;
  parallel_for(tasks, [&](int64_t task, int) {
    const int64_t end = std::min(rows, (task + 1) * kRowsPerTask);
    for (int64_t row = task * kRowsPerTask; row < end; ++row) {
      for (int64_t head = 0; head < heads; ++head) body(row, head);
    }
  });
}

// Calls visit with a pointer of the tensor's element type.
template <class Visit>
void with_elements(DType dtype, const Visit& visit) {
  switch (dtype) {
    case DType::kF32:
      return visit(static_cast<float*>(nullptr));
    case DType::kBF16:
      return visit(static_cast<bf16*>(nullptr));
    case DType::kF16:
      return visit(static_cast<f16*>(nullptr));
    case DType::kF64:
      break;
  }
  LONGSPAN_CHECK(false, "rows of {} are not exchanged", name_of(dtype));
}

float load(float x) {
  return x;
}
float load(bf16 x) {
  return to_float(x);
}
float load(f16 x) {
  return to_float(x);
}
void store(float& to, float x) {
  to = x;
}
void store(bf16& to, float x) {
  to = to_bf16(x);
}
void store(f16& to, float x) {
  to = to_f16(x);
}

void check_shapes(const Rows& to, const Rows& from) {
  LONGSPAN_CHECK(to.tensor.heads == from.tensor.heads && to.tensor.head_dim == from.tensor.head_dim,
                 "rows of {} heads of {} do not match rows of {} heads of {}", to.tensor.heads,
                 to.tensor.head_dim, from.tensor.heads, from.tensor.head_dim);
}

void copy_rows(const Rows& to, const Rows& from, const RowSpan& span) {
  const TensorView out = at(to, span.to), in = at(from, span.from);
  with_elements(out.dtype, [&](auto* out_type) {
    with_elements(in.dtype, [&](auto* in_type) {
      using Out = std::remove_pointer_t<decltype(out_type)>;
      using In = std::remove_pointer_t<decltype(in_type)>;
      for_each_row(span.rows, out.heads, [&](int64_t row, int64_t head) {
        Out* target = out.template row<Out>(row, head);
        const In* source = in.template row<In>(row, head);
        if constexpr (std::is_same_v<Out, In>) {
          std::memcpy(target, source, static_cast<size_t>(out.head_dim) * sizeof(Out));
        } else {
          for (int64_t d = 0; d < out.head_dim; ++d) store(target[d], load(source[d]));
        }
      });
    });
  });
  if (to.lse == nullptr) return;
  for (int64_t head = 0; head < out.heads; ++head) {
    std::copy_n(from.lse + head * from.lse_stride + span.from, span.rows,
                to.lse + head * to.lse_stride + span.to);
  }
}

void add_rows(const Rows& to, const Rows& from, const RowSpan& span) {
  const TensorView out = at(to, span.to), in = at(from, span.from);
  with_elements(in.dtype, [&](auto* in_type) {
    using In = std::remove_pointer_t<decltype(in_type)>;
    for_each_row(span.rows, out.heads, [&](int64_t row, int64_t head) {
      float* target = out.template row<float>(row, head);
      const In* source = in.template row<In>(row, head);
      for (int64_t d = 0; d < out.head_dim; ++d) target[d] += load(source[d]);
    });
  });
}

void merge_rows(const Rows& to, const Rows& from, const RowSpan& span) {
  const TensorView out = at(to, span.to), in = at(from, span.from);
  with_elements(in.dtype, [&](auto* in_type) {
    using In = std::remove_pointer_t<decltype(in_type)>;
    for_each_row(span.rows, out.heads, [&](int64_t row, int64_t head) {
      const In* source = in.template row<In>(row, head);
      const float* part = nullptr;
      std::vector<float> converted;
      if constexpr (std::is_same_v<In, float>) {
        part = source;
      } else {
        for (int64_t d = 0; d < in.head_dim; ++d) converted.push_back(load(source[d]));
        part = converted.data();
      }
      merge_row(out.template row<float>(row, head), to.lse[head * to.lse_stride + span.to + row], part,
                from.lse[head * from.lse_stride + span.from + row], out.head_dim);
    });
  });
}

void clear_rows(const Rows& to, const RowSpan& span) {
  const TensorView out = at(to, span.to);
  for_each_row(span.rows, out.heads, [&](int64_t row, int64_t head) {
    std::memset(out.row_address(row, head), 0, static_cast<size_t>(out.head_dim) * size_of(out.dtype));
    if (to.lse != nullptr) to.lse[head * to.lse_stride + span.to + row] = -kInfinity;
  });
}

}  // namespace

void apply(RowOperation operation, const Rows& to, const Rows& from, std::span<const RowSpan> spans,
           Stream stream) {
  if (operation != RowOperation::kClear) check_shapes(to, from);
  LONGSPAN_CHECK((operation != RowOperation::kAdd && operation != RowOperation::kMerge) ||
                     to.tensor.dtype == DType::kF32,
                 "sums are f32, not {}", name_of(to.tensor.dtype));
  if (spans.empty()) return;
  if (to.kind == DeviceKind::kCuda) {
    apply_cuda(operation, to, from, spans, stream);
    return;
  }
  for (const RowSpan& span : spans) {
    switch (operation) {
      case RowOperation::kCopy:
        copy_rows(to, from, span);
        break;
      case RowOperation::kAdd:
        add_rows(to, from, span);
        break;
      case RowOperation::kMerge:
        merge_rows(to, from, span);
        break;
      case RowOperation::kClear:
        clear_rows(to, span);
        break;
    }
  }
}

void apply_pairs(RowOperation operation, DeviceKind kind, std::span<const RowPair> pairs, Stream stream) {
  LONGSPAN_CHECK(operation == RowOperation::kCopy || operation == RowOperation::kAdd,
                 "pairs of rows are copied or added");
  for (const RowPair& pair : pairs) {
    LONGSPAN_CHECK(pair.to.tokens == pair.from.tokens && pair.to.heads == pair.from.heads,
                   "{} rows of {} heads and {} of {}", pair.to.tokens, pair.to.heads, pair.from.tokens,
                   pair.from.heads);
  }
  if (kind == DeviceKind::kCuda) return apply_pairs_cuda(operation, pairs, stream);
  for (const RowPair& pair : pairs) {
    const RowSpan all{0, 0, pair.to.tokens};
    apply(operation, {kind, pair.to, nullptr, 0}, {kind, pair.from, nullptr, 0}, {&all, 1}, stream);
  }
}

}  // namespace longspan
