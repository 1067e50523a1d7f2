// Attention sinks, which are added to the results of a forward pass.
#include "attention/sinks.h"

#include <cmath>
#include <limits>

#include "attention/element.h"
#include "attention/sink_rule.h"
#include "attention/sinks_cuda.h"
#include "base/backend.h"
#include "base/error.h"
#include "base/parallel.h"

namespace longspan {
namespace {

void check_rows(const char* name, const TensorView& view, const Device& device) {
  LONGSPAN_CHECK_INPUT(view.dtype == DType::kF32 || view.dtype == DType::kBF16 || view.dtype == DType::kF16,
                       "{} is of dtype {}; must be f32, bf16 or f16", name, static_cast<int>(view.dtype));
  LONGSPAN_CHECK_INPUT(view.tokens >= 0 && view.heads >= 1 && view.head_dim >= 1,
                       "{} has {} tokens, {} heads and head_dim {}; must have at least 0, 1 and 1", name,
                       view.tokens, view.heads, view.head_dim);
  if (view.tokens == 0) return;
  LONGSPAN_CHECK_INPUT(view.data != nullptr, "{} is null", name);
  const std::string reason = backend_of(device.kind).misplaced(view.data, device.index);
  LONGSPAN_CHECK_INPUT(reason.empty(), "{} is {}", name, reason);
}

void check_floats(const char* name, const float* data, const Device& device) {
  LONGSPAN_CHECK_INPUT(data != nullptr, "{} is null", name);
  const std::string reason = backend_of(device.kind).misplaced(data, device.index);
  LONGSPAN_CHECK_INPUT(reason.empty(), "{} is {}", name, reason);
}

template <class T>
void add_to_head(const TensorView& o, float* lse, float sink, int64_t head) {
  for (int64_t t = 0; t < o.tokens; ++t) {
    const float before = lse[t];
    const auto [after, share] = with_sink(before, sink);
    lse[t] = after;
    if (before == -std::numeric_limits<float>::infinity()) continue;  // o = 0
    T* const row = o.row<T>(t, head);
    for (int64_t d = 0; d < o.head_dim; ++d)
      row[d] = from_double<T>(static_cast<float>(to_double(row[d])) * share);
  }
}

double gradient_of_head(const TensorView& o, const TensorView& dout, const float* lse, const float* dlse,
                        float sink, int64_t head) {
  std::vector<double> a(static_cast<size_t>(o.head_dim)), b(a.size());
  double sum = 0;
  for (int64_t t = 0; t < o.tokens; ++t) {
    load_row(o, t, head, a.data());
    load_row(dout, t, head, b.data());
    double delta = dlse == nullptr ? 0 : -double{dlse[t]};
    for (size_t d = 0; d < a.size(); ++d) delta += a[d] * b[d];
    sum -= std::exp(double{sink} - lse[t]) * delta;
  }
  return sum;
}

}  // namespace

void add_sinks(const TensorView& o, float* lse, const float* sinks, const Device& device,
               [[maybe_unused]] Stream stream) {
  check_rows("o", o, device);
  check_floats("sinks", sinks, device);
  if (o.tokens == 0) return;
  check_floats("lse", lse, device);
#ifdef LONGSPAN_WITH_CUDA
  if (device.kind == DeviceKind::kCuda) return cuda::add_sinks(o, lse, sinks, device, stream);
#endif
  parallel_for(o.heads, [&](int64_t head, int) {
    with_element_type(o.dtype, [&](auto type) {
      add_to_head<decltype(type)>(o, lse + head * o.tokens, sinks[head], head);
    });
  });
}

void sink_gradients(const SinkGradientArgs& args, const Device& device, [[maybe_unused]] Stream stream) {
  const TensorView& o = args.o;
  check_rows("o", o, device);
  check_rows("dout", args.dout, device);
  LONGSPAN_CHECK_INPUT(
      args.dout.tokens == o.tokens && args.dout.heads == o.heads && args.dout.head_dim == o.head_dim,
      "dout has {} tokens, {} heads and head_dim {}; must have those of o, {}, {} and {}", args.dout.tokens,
      args.dout.heads, args.dout.head_dim, o.tokens, o.heads, o.head_dim);
  check_floats("sinks", args.sinks, device);
  check_floats("dsinks", args.dsinks, device);
  if (o.tokens > 0) check_floats("lse", args.lse, device);
  if (args.dlse != nullptr) check_floats("dlse", args.dlse, device);
#ifdef LONGSPAN_WITH_CUDA
  if (device.kind == DeviceKind::kCuda) return cuda::sink_gradients(args, device, stream);
#endif
  parallel_for(o.heads, [&](int64_t head, int) {
    const float* dlse = args.dlse == nullptr ? nullptr : args.dlse + head * o.tokens;
    args.dsinks[head] = static_cast<float>(
        gradient_of_head(o, args.dout, args.lse + head * o.tokens, dlse, args.sinks[head], head));
  });
}

void finish_sinks(const ForwardArgs& args, const Device& device, Stream stream) {
  if (args.sinks != nullptr) add_sinks(args.o, args.lse, args.sinks, device, stream);
}

void finish_sinks(const BackwardArgs& args, const Device& device, Stream stream) {
  if (args.sinks != nullptr)
    sink_gradients({args.o, args.dout, args.lse, args.dlse, args.sinks, args.dsinks}, device, stream);
}

}  // namespace longspan
