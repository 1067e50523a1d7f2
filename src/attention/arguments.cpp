#include "attention/arguments.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/backend.h"
#include "base/error.h"

namespace longspan {
namespace {

constexpr size_t kBlockAlignment = 256;
constexpr size_t kHostAlignment = 64;  // of what a forward pass keeps: frameworks allocate it so on the CPU

// The memory of an argument: rows of `row` bytes, `inner` bytes apart, in groups that are `outer` bytes
// apart.
struct Extent {
  std::string name;
  uintptr_t begin = 0;
  int64_t row = 0, inner = 0, outer = 0;
  int64_t group = 0, whole = 0;  // bytes from the first to past the last of a group, and of all

  bool rows_are_disjoint() const { return inner >= row && outer >= group; }
};

Extent extent_of_bytes(std::string name, const void* data, int64_t bytes) {
  return {std::move(name), reinterpret_cast<uintptr_t>(data), bytes, bytes, bytes, bytes, bytes};
}

// Whether blocks of `a` and `b` bytes that repeat every `period` bytes never meet; b starts `distance` later.
bool interleave(int64_t distance, int64_t a, int64_t b, int64_t period) {
  if (period <= 0) return false;
  const int64_t offset = ((distance % period) + period) % period;
  return a <= offset && offset + b <= period;
}

// Whether the two share no byte for certain: they are apart, or interleave as the parts of a packed tensor
// do.
bool disjoint(const Extent& a, const Extent& b) {
  const auto distance = static_cast<int64_t>(b.begin - a.begin);
  if (distance >= a.whole || -distance >= b.whole) return true;
  if (a.outer != b.outer) return false;
  return interleave(distance, a.group, b.group, a.outer) ||
         (a.inner == b.inner && a.inner > 0 && a.outer % a.inner == 0 &&
          interleave(distance, a.row, b.row, a.inner));
}

// Checks arguments one by one and keeps their extents.
class Checker {
 public:
  Checker(const Problem& problem, const ArgumentRules& rules) : problem_(problem), rules_(rules) {}

  void query_input(const char* name, const TensorView& view, int64_t dim, bool may_be_f32 = false) {
    inputs_.push_back(tensor(name, view, problem_.tokens_q, problem_.heads_q, dim, may_be_f32));
  }
  void key_input(const char* name, const TensorView& view, int64_t dim) {
    inputs_.push_back(tensor(name, view, problem_.tokens_kv, problem_.heads_kv, dim, false));
  }
  void query_output(const char* name, const TensorView& view, int64_t dim, bool may_be_f32) {
    output(tensor(name, view, problem_.tokens_q, problem_.heads_q, dim, may_be_f32));
  }
  void key_output(const char* name, const TensorView& view, int64_t dim, bool may_be_f32) {
    output(tensor(name, view, problem_.tokens_kv, problem_.heads_kv, dim, may_be_f32));
  }
  void lse_input(const char* name, const float* data) { inputs_.push_back(lse(name, data)); }
  void lse_output(const float* data) { output(lse("lse", data)); }
  void sinks(const float* data) { inputs_.push_back(floats("sinks", data, "heads_q", problem_.heads_q)); }
  void dsinks(const float* data) { output(floats("dsinks", data, "heads_q", problem_.heads_q)); }

  void part(const TensorView& view) {
    LONGSPAN_CHECK_INPUT(rules_.merges_parts,
                         "part_lse is set, but {} merges no partial results: leave it null", rules_.kernel);
    LONGSPAN_CHECK_INPUT(view.dtype == DType::kF32, "part_o is {}; must be f32", name_checked(view.dtype));
    tensor("part_o", view, problem_.tokens_q, problem_.heads_q, problem_.dim_v(), true);
  }

  void workspace(const void* data, size_t given) {
    const size_t needed = rules_.workspace_bytes;
    if (needed == 0) return;
    output(block("workspace", data, given == 0 ? needed : given, needed, "Plan::workspace_bytes()"));
  }
  void kept_output() {
    if (rules_.kept.data() != nullptr && rules_.kept_bytes > 0) output(kept());
  }
  void kept_input() {
    if (rules_.kept_bytes > 0) inputs_.push_back(kept());
  }

  // No output may share memory with an input or with another output.
  void overlaps() const {
    for (size_t i = 0; i < outputs_.size(); ++i) {
      for (const Extent& input : inputs_) refuse_overlap(outputs_[i], input);
      for (size_t j = 0; j < i; ++j) refuse_overlap(outputs_[i], outputs_[j]);
    }
  }

 private:
  static std::string name_checked(DType dtype) {
    return dtype <= DType::kF64 ? std::string(name_of(dtype)) : fmt::format("of no dtype ({})", int(dtype));
  }

  void in_place(const char* name, const void* data) const {
    const Device& device = rules_.device;
    const std::string reason = backend_of(device.kind).misplaced(data, device.index);
    LONGSPAN_CHECK_INPUT(reason.empty(), "{} is {}", name, reason);
  }

  Extent tensor(const char* name, const TensorView& view, int64_t tokens, int64_t heads, int64_t dim,
                bool may_be_f32) const {
    const DType dtype = problem_.dtype;
    LONGSPAN_CHECK_INPUT(view.dtype == dtype || (may_be_f32 && view.dtype == DType::kF32),
                         "{} is {}; must be {}, as the problem says", name, name_checked(view.dtype),
                         may_be_f32 && dtype != DType::kF32 ? fmt::format("{} or f32", name_of(dtype))
                                                            : std::string(name_of(dtype)));
    LONGSPAN_CHECK_INPUT(
        view.tokens == tokens && view.heads == heads && view.head_dim == dim,
        "{} has {} tokens, {} heads and head_dim {}; must have {}, {} and {}, as the problem says", name,
        view.tokens, view.heads, view.head_dim, tokens, heads, dim);
    if (tokens == 0) return extent_of_bytes(name, nullptr, 0);  // a rank without tokens
    LONGSPAN_CHECK_INPUT(view.data != nullptr, "{} is null; must point to its {} elements", name,
                         view.elements());
    return placed(name, view);
  }

  Extent placed(const char* name, const TensorView& view) const {
    const auto bytes = static_cast<int64_t>(size_of(view.dtype));
    constexpr int64_t kFarthest = int64_t{1} << 60;  // bytes
    const int64_t row = view.head_dim * bytes;
    for (const auto& [what, count, stride] : {std::tuple{"token_stride", view.tokens, view.token_stride},
                                              std::tuple{"head_stride", view.heads, view.head_stride}}) {
      if (count == 1) continue;
      LONGSPAN_CHECK_INPUT(stride >= 0 && stride <= kFarthest / bytes / count,
                           "{} of {} is {} elements; must be from 0 to {}", what, name, stride,
                           kFarthest / bytes / count);
    }
    const int64_t token_stride = view.tokens == 1 ? 0 : view.token_stride * bytes;
    const int64_t head_stride = view.heads == 1 ? 0 : view.head_stride * bytes;
    // A dimension of one has no stride of its own. It counts as the inner one, with rows side by side.
    const bool token_outside = view.heads == 1 || (view.tokens > 1 && token_stride >= head_stride);
    const int64_t inner_count = token_outside ? view.heads : view.tokens;
    const int64_t outer_count = token_outside ? view.tokens : view.heads;
    Extent extent{.name = name, .begin = reinterpret_cast<uintptr_t>(view.data), .row = row};
    extent.inner = inner_count == 1 ? row : (token_outside ? head_stride : token_stride);
    extent.group = (inner_count - 1) * extent.inner + row;
    extent.outer = outer_count == 1 ? extent.group : (token_outside ? token_stride : head_stride);
    extent.whole = (outer_count - 1) * extent.outer + extent.group;

    const auto alignment = static_cast<int64_t>(std::max(rules_.alignment, size_of(view.dtype)));
    LONGSPAN_CHECK_INPUT(extent.begin % static_cast<uintptr_t>(alignment) == 0,
                         "{} is at {}; {} needs tensors aligned to {} bytes", name, view.data, rules_.kernel,
                         alignment);
    LONGSPAN_CHECK_INPUT(token_stride % alignment == 0 && head_stride % alignment == 0,
                         "{} has strides of {} and {} elements; {} needs rows aligned to {} bytes", name,
                         view.token_stride, view.head_stride, rules_.kernel, alignment);
    in_place(name, view.data);
    return extent;
  }

  Extent block(const char* name, const void* data, size_t given, size_t needed, const char* source,
               size_t alignment = kBlockAlignment) const {
    LONGSPAN_CHECK_INPUT(data != nullptr, "{} is null; {} needs {} bytes, as {} says", name, rules_.kernel,
                         needed, source);
    LONGSPAN_CHECK_INPUT(reinterpret_cast<uintptr_t>(data) % alignment == 0,
                         "{} is at {}; must be aligned to {} bytes, as a Buffer is", name, data, alignment);
    LONGSPAN_CHECK_INPUT(given >= needed, "{} has {} bytes; {} needs {}, as {} says", name, given,
                         rules_.kernel, needed, source);
    in_place(name, data);
    return extent_of_bytes(name, data, static_cast<int64_t>(needed));
  }
  Extent kept() const {
    const size_t alignment = rules_.device.kind == DeviceKind::kCpu ? kHostAlignment : kBlockAlignment;
    return block("kept", rules_.kept.data(), rules_.kept.size(), rules_.kept_bytes, "kept_bytes()",
                 alignment);
  }

  Extent lse(const char* name, const float* data) const {
    return floats(name, data, "heads_q, tokens_q", problem_.heads_q * problem_.tokens_q);
  }
  Extent floats(const char* name, const float* data, const char* shape, int64_t count) const {
    if (count == 0) return extent_of_bytes(name, nullptr, 0);
    LONGSPAN_CHECK_INPUT(data != nullptr, "{} is null; must point to {} floats, [{}]", name, count, shape);
    LONGSPAN_CHECK_INPUT(reinterpret_cast<uintptr_t>(data) % sizeof(float) == 0,
                         "{} is at {}; must be aligned to {} bytes", name, static_cast<const void*>(data),
                         sizeof(float));
    in_place(name, data);
    return extent_of_bytes(name, data, count * static_cast<int64_t>(sizeof(float)));
  }

  void output(Extent extent) {
    LONGSPAN_CHECK_INPUT(
        extent.rows_are_disjoint(),
        "{} has rows of {} bytes that overlap, by strides of {} and {} bytes; an output needs "
        "rows of its own",
        extent.name, extent.row, extent.inner, extent.outer);
    outputs_.push_back(std::move(extent));
  }

  static void refuse_overlap(const Extent& a, const Extent& b) {
    LONGSPAN_CHECK_INPUT(disjoint(a, b), "{} overlaps {} in memory; an output needs memory of its own",
                         a.name, b.name);
  }

  const Problem& problem_;
  const ArgumentRules& rules_;
  std::vector<Extent> inputs_, outputs_;
};

}  // namespace

void check(const ForwardArgs& args, const Problem& problem, const ArgumentRules& rules) {
  const int64_t dim = problem.head_dim, dim_v = problem.dim_v();
  Checker checker(problem, rules);
  checker.query_input("q", args.q, dim);
  checker.key_input("k", args.k, dim);
  checker.key_input("v", args.v, dim_v);
  checker.query_output("o", args.o, dim_v, problem.fp32_output && !problem.own_rows);
  checker.lse_output(args.lse);
  if (args.part_lse != nullptr) checker.part(args.part_o);
  LONGSPAN_CHECK_INPUT(args.sinks == nullptr || (args.part_lse == nullptr && !rules.over_ranks),
                       "sinks are set {}: leave them null and call add_sinks() afterwards",
                       rules.over_ranks ? "over ranks" : "together with part_lse");
  if (args.sinks != nullptr) checker.sinks(args.sinks);
  checker.workspace(args.workspace, args.workspace_size);
  checker.kept_output();
  checker.overlaps();
}

void check(const BackwardArgs& args, const Problem& problem, const ArgumentRules& rules) {
  const bool f32_rows = problem.fp32_output && !problem.own_rows;
  const int64_t dim = problem.head_dim, dim_v = problem.dim_v();
  Checker checker(problem, rules);
  checker.query_input("q", args.q, dim);
  checker.key_input("k", args.k, dim);
  checker.key_input("v", args.v, dim_v);
  checker.query_input("o", args.o, dim_v, f32_rows);
  checker.query_input("dout", args.dout, dim_v);
  checker.lse_input("lse", args.lse);
  LONGSPAN_CHECK_INPUT(args.dlse == nullptr || problem.lse_gradient,
                       "dlse is set, but the problem was planned without lse_gradient: leave it null");
  if (args.dlse != nullptr) checker.lse_input("dlse", args.dlse);
  if (args.sinks != nullptr || args.dsinks != nullptr) {
    LONGSPAN_CHECK_INPUT(!rules.over_ranks,
                         "sinks are set over ranks: leave them and dsinks null and call "
                         "sink_gradients()");
    checker.sinks(args.sinks);
    checker.dsinks(args.dsinks);
  }
  checker.query_output("dq", args.dq, dim, f32_rows);
  checker.key_output("dk", args.dk, dim, problem.fp32_output);
  checker.key_output("dv", args.dv, dim_v, problem.fp32_output);
  checker.workspace(args.workspace, args.workspace_size);
  checker.kept_input();
  checker.overlaps();
}

}  // namespace longspan
