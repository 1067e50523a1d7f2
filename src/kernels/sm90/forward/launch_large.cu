#include "base/error.h"
#include "kernels/sm90/forward/plan.h"
#include "kernels/sm90/forward/start.cuh"

namespace longspan::sm90 {
namespace {

template <class Element>
void start_for(const Problem& problem, const ForwardShape& shape, ForwardParams& params, const Device& device,
               cudaStream_t stream) {
  const bool plain = shape.piece == shape.columns && shape.streams == 1;
  const auto is = [&](int64_t d, int64_t dv, int columns, int warpgroups) {
    return plain && problem.head_dim == d && problem.dim_v() == dv && shape.columns == columns &&
           shape.warpgroups == warpgroups;
  };
  if (is(192, 128, 80, 3))
    return start_forward<ForwardConfig<Element, 192, 80, 80, 1, 3, 128>>(params, device, stream);
  if (is(256, 256, 80, 2)) {
    using C = ForwardConfig<Element, 256, 80, 80, 1>;
    if (in_pairs(shape, params)) return start_forward<Paired<C>>(params, device, stream);
    return start_forward<C>(params, device, stream);
  }
  LONGSPAN_CHECK(
      false,
      "no instance of the forward kernel has head_dim {} and {}, {} columns of {}, {} warpgroups and "
      "{} streams",
      problem.head_dim, problem.dim_v(), shape.columns, shape.piece, shape.warpgroups, shape.streams);
}

}  // namespace

void start_large_forward(const Problem& problem, const ForwardShape& shape, ForwardParams& params,
                         const Device& device, cudaStream_t stream) {
  if (problem.dtype == DType::kBF16)
    start_for<__nv_bfloat16>(problem, shape, params, device, stream);
  else
    start_for<__half>(problem, shape, params, device, stream);
}

}  // namespace longspan::sm90
