#include "attention/problem.h"

#include <cmath>

#include "base/error.h"

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

float Problem::softmax_scale() const {
  return scale != 0 ? scale : 1 / std::sqrt(static_cast<float>(head_dim));
}

int64_t Problem::area() const {
  int64_t sum = 0;
  for (const Mask& mask : *masks) sum += mask.area();
  return sum * (heads_q / static_cast<int64_t>(masks->size()));
}

void Problem::check() const {
  LONGSPAN_CHECK_INPUT(tokens_q >= 1, "tokens_q is {}; must be at least 1", tokens_q);
  LONGSPAN_CHECK_INPUT(tokens_kv >= 1, "tokens_kv is {}; must be at least 1", tokens_kv);
  LONGSPAN_CHECK_INPUT(heads_q >= 1, "heads_q is {}; must be at least 1", heads_q);
  LONGSPAN_CHECK_INPUT(heads_kv >= 1, "heads_kv is {}; must be at least 1", heads_kv);
  LONGSPAN_CHECK_INPUT(heads_q % heads_kv == 0, "heads_q is {}; must be a multiple of heads_kv, {}", heads_q,
                       heads_kv);
  LONGSPAN_CHECK_INPUT(head_dim >= 1, "head_dim is {}; must be at least 1", head_dim);
  LONGSPAN_CHECK_INPUT(dtype != DType::kF64, "dtype is f64; must be f32, bf16 or f16");
  LONGSPAN_CHECK_INPUT(std::isfinite(scale), "scale is {}; must be finite (0: 1 / sqrt(head_dim))", scale);
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
}

double flops(const Problem& problem, Direction direction) {
  const double forward = 4.0 * static_cast<double>(problem.area()) * static_cast<double>(problem.head_dim);
  return direction == Direction::kForward ? forward : 2.5 * forward;
}

}  // namespace longspan
