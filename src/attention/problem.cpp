#include "attention/problem.h"

#include <cmath>

#include "base/error.h"
#include "base/rng.h"

namespace longspan {

std::string_view name_of(Direction direction) {
  return direction == Direction::kForward ? "forward" : "backward";
}

Direction direction_from_name(std::string_view name) {
  if (name == "forward" || name == "fwd") return Direction::kForward;
  LONGSPAN_CHECK_INPUT(name == "backward" || name == "bwd",
                       "'{}': must be forward (or fwd) or backward (or bwd)", name);
  return Direction::kBackward;
}

std::vector<float> alibi_slopes(int64_t heads) {
  std::vector<float> slopes;
  for (int64_t h = 1; h <= heads; ++h)
    slopes.push_back(std::exp2(-8 * static_cast<float>(h) / static_cast<float>(heads)));
  return slopes;
}

std::vector<float> drawn_sinks(int64_t heads, uint64_t seed) {
  constexpr uint64_t kStream = 5;  // those before are of the tensors
  std::vector<float> sinks(static_cast<size_t>(heads));
  fill_normal(TensorView::contiguous(sinks.data(), DType::kF32, heads, 1, 1), seed, kStream);
  return sinks;
}

float Problem::softmax_scale() const {
  return scale != 0 ? scale : 1 / std::sqrt(static_cast<float>(head_dim));
}

int64_t Problem::group_size() const {
  LONGSPAN_CHECK_INPUT(heads_kv >= 1 && heads_q >= heads_kv,
                       "heads_q is {} and heads_kv is {}; must be a multiple of it, and at least 1", heads_q,
                       heads_kv);
  return heads_q / heads_kv;
}

const Mask& Problem::mask_of_kv_head(int64_t h) const {
  LONGSPAN_CHECK_INPUT(masks != nullptr && !masks->empty(), "there is no mask; give one, or one per KV head");
  if (masks->size() == 1) return masks->front();
  LONGSPAN_CHECK_INPUT(0 <= h && h < static_cast<int64_t>(masks->size()),
                       "KV head {} has no mask; there are {} masks", h, masks->size());
  return (*masks)[static_cast<size_t>(h)];
}

int64_t Problem::area() const {
  LONGSPAN_CHECK_INPUT(masks != nullptr && !masks->empty(), "there is no mask; give one, or one per KV head");
  int64_t sum = 0, area = 0;
  bool too_large = false;
  for (const Mask& mask : *masks) too_large = too_large || __builtin_add_overflow(sum, mask.area(), &sum);
  const int64_t heads = heads_q / static_cast<int64_t>(masks->size());
  too_large = too_large || __builtin_mul_overflow(sum, heads, &area);
  LONGSPAN_CHECK_INPUT(!too_large, "{} heads of masks of {} visible pairs: must be below 2^63 in all",
                       heads_q, masks->front().area());
  return area;
}

namespace {

// So many elements that no product of sizes overflows. More fits into no machine.
void check_elements(const char* name, int64_t tokens, int64_t heads, int64_t head_dim) {
  constexpr int64_t kMost = int64_t{1} << 50;
  LONGSPAN_CHECK_INPUT(
      tokens <= kMaxTokens && head_dim <= kMost / tokens && heads <= kMost / tokens / head_dim,
      "{} has {} tokens, {} heads and head_dim {}; must be at most {} tokens and 2^50 elements", name, tokens,
      heads, head_dim, kMaxTokens);
}

}  // namespace

void Problem::check() const {
  LONGSPAN_CHECK_INPUT(tokens_q >= 1, "tokens_q is {}; must be at least 1", tokens_q);
  LONGSPAN_CHECK_INPUT(tokens_kv >= 1, "tokens_kv is {}; must be at least 1", tokens_kv);
  LONGSPAN_CHECK_INPUT(heads_q >= 1, "heads_q is {}; must be at least 1", heads_q);
  LONGSPAN_CHECK_INPUT(heads_kv >= 1, "heads_kv is {}; must be at least 1", heads_kv);
  LONGSPAN_CHECK_INPUT(heads_q % heads_kv == 0, "heads_q is {}; must be a multiple of heads_kv, {}", heads_q,
                       heads_kv);
  LONGSPAN_CHECK_INPUT(head_dim >= 1, "head_dim is {}; must be at least 1", head_dim);
  LONGSPAN_CHECK_INPUT(
      dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16,
      "dtype is {}; must be f32, bf16 or f16",
      dtype == DType::kF64 ? "f64" : fmt::format("of no kind ({})", static_cast<int>(dtype)));
  LONGSPAN_CHECK_INPUT(head_dim_v >= 0, "head_dim_v is {}; must be at least 1, or 0 for head_dim",
                       head_dim_v);
  check_elements("q", tokens_q, heads_q, head_dim);
  check_elements("k", tokens_kv, heads_kv, head_dim);
  check_elements("o", tokens_q, heads_q, dim_v());
  check_elements("v", tokens_kv, heads_kv, dim_v());
  LONGSPAN_CHECK_INPUT(std::isfinite(scale), "scale is {}; must be finite (0: 1 / sqrt(head_dim))", scale);
  LONGSPAN_CHECK_INPUT(std::isfinite(softcap) && softcap >= 0,
                       "softcap is {}; must be positive, or 0 for none", softcap);
  LONGSPAN_CHECK_INPUT(alibi_slopes.empty() || static_cast<int64_t>(alibi_slopes.size()) == heads_q,
                       "there are {} alibi_slopes; must be one per query head ({}), or none",
                       alibi_slopes.size(), heads_q);
  for (const float slope : alibi_slopes)
    LONGSPAN_CHECK_INPUT(std::isfinite(slope) && slope >= 0, "an ALiBi slope is {}; must be at least 0",
                         slope);
  LONGSPAN_CHECK_INPUT(sinks.empty() || static_cast<int64_t>(sinks.size()) == heads_q,
                       "there are {} sinks; must be one per query head ({}), or none", sinks.size(), heads_q);
  for (const float sink : sinks)
    LONGSPAN_CHECK_INPUT(std::isfinite(sink), "a sink is {}; must be finite", sink);
  LONGSPAN_CHECK_INPUT(masks != nullptr && !masks->empty(), "there is no mask; give one, or one per KV head");
  LONGSPAN_CHECK_INPUT(masks->size() == 1 || static_cast<int64_t>(masks->size()) == heads_kv,
                       "there are {} masks; must be one for all heads, or one per KV head ({})",
                       masks->size(), heads_kv);
  for (size_t h = 0; h < masks->size(); ++h) {
    const Mask& mask = (*masks)[h];
    LONGSPAN_CHECK_INPUT(mask.rows() == tokens_q && mask.columns() == tokens_kv,
                         "mask {} has {} rows and {} columns; must have tokens_q = {} and tokens_kv = {}", h,
                         mask.rows(), mask.columns(), tokens_q, tokens_kv);
  }
  static_cast<void>(area());  // or throws
}

double flops(const Problem& problem, Direction direction) {
  const auto dim = static_cast<double>(problem.head_dim), dim_v = static_cast<double>(problem.dim_v());
  const double elements = direction == Direction::kForward ? dim + dim_v : 3 * dim + 2 * dim_v;
  return 2 * static_cast<double>(problem.area()) * elements;
}

}  // namespace longspan
