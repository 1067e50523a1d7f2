#include "cp/rows.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "attention/merge.h"
#include "base/error.h"
#include "base/parallel.h"

namespace longspan {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kRowsPerTask = 64;

TensorView at(const Rows& rows) {
  TensorView view = rows.tensor;
  view.data = static_cast<char*>(view.data) +
              rows.row * view.token_stride * static_cast<int64_t>(size_of(view.dtype));
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

}  // namespace

void copy_rows(const Rows& to, const Rows& from, int64_t rows, Stream) {
  check_shapes(to, from);
  const TensorView out = at(to), in = at(from);
  with_elements(out.dtype, [&](auto* out_type) {
    with_elements(in.dtype, [&](auto* in_type) {
      using Out = std::remove_pointer_t<decltype(out_type)>;
      using In = std::remove_pointer_t<decltype(in_type)>;
      for_each_row(rows, out.heads, [&](int64_t row, int64_t head) {
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
    std::copy_n(from.lse + head * from.lse_stride + from.row, rows, to.lse + head * to.lse_stride + to.row);
  }
}

void add_rows(const Rows& to, const Rows& from, int64_t rows, Stream) {
  check_shapes(to, from);
  const TensorView out = at(to), in = at(from);
  with_elements(in.dtype, [&](auto* in_type) {
    using In = std::remove_pointer_t<decltype(in_type)>;
    for_each_row(rows, out.heads, [&](int64_t row, int64_t head) {
      float* target = out.template row<float>(row, head);
      const In* source = in.template row<In>(row, head);
      for (int64_t d = 0; d < out.head_dim; ++d) target[d] += load(source[d]);
    });
  });
}

void merge_rows(const Rows& to, const Rows& from, int64_t rows, Stream) {
  check_shapes(to, from);
  const TensorView out = at(to), in = at(from);
  with_elements(in.dtype, [&](auto* in_type) {
    using In = std::remove_pointer_t<decltype(in_type)>;
    for_each_row(rows, out.heads, [&](int64_t row, int64_t head) {
      const In* source = in.template row<In>(row, head);
      const float* part = nullptr;
      std::vector<float> converted;
      if constexpr (std::is_same_v<In, float>) {
        part = source;
      } else {
        for (int64_t d = 0; d < in.head_dim; ++d) converted.push_back(load(source[d]));
        part = converted.data();
      }
      merge_row(out.template row<float>(row, head), to.lse[head * to.lse_stride + to.row + row], part,
                from.lse[head * from.lse_stride + from.row + row], out.head_dim);
    });
  });
}

void clear_rows(const Rows& to, int64_t rows, Stream) {
  const TensorView out = at(to);
  for_each_row(rows, out.heads, [&](int64_t row, int64_t head) {
    auto* bytes = static_cast<char*>(out.data) + (row * out.token_stride + head * out.head_stride) *
                                                     static_cast<int64_t>(size_of(out.dtype));
    std::memset(bytes, 0, static_cast<size_t>(out.head_dim) * size_of(out.dtype));
    if (to.lse != nullptr) to.lse[head * to.lse_stride + to.row + row] = -kInfinity;
  });
}

}  // namespace longspan
