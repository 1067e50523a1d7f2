// Which heads are worked on together, so that their rows stay in L2: sections of KV heads, and some query
// heads of each at a time.
#include <algorithm>

#include "base/ceil_div.h"
#include "kernels/sm90/backward/planner/choose_split.h"
#include "kernels/sm90/tuning/h200.h"

namespace longspan::sm90 {
namespace {

namespace tuned = h200::backward;

// Query heads that are worked on together.
int64_t heads_at_once(const Problem& problem, const BackwardShape& shape, const BackwardSplit& split,
                      int64_t workers) {
  const int64_t of_item = problem.group_size() / split.parts;
  if (shape.section_units > 0) {
    const int64_t elements = shape.section_units * of_item * problem.tokens_q * problem.head_dim;
    return (static_cast<double>(elements) > tuned::kRowsInL2 ? 1 : shape.section_units) * of_item;
  }
  return std::max(workers / tuned::kCtasOfHead, of_item);
}

}  // namespace

BackwardSharing sharing_of(const Problem& problem, const BackwardShape& shape, const BackwardSplit& split,
                           int64_t key_tiles, int64_t workers) {
  const int64_t group = problem.group_size();
  const int64_t last_heads = ceil_div(split.last_rounds * workers, std::max<int64_t>(key_tiles, 1));
  return {
      .group = static_cast<int32_t>(group),
      .parts = split.parts,
      .most_tiles = split.most_tiles,
      .group_items = split.group_items,
      .heads_at_once = static_cast<int32_t>(std::min(heads_at_once(problem, shape, split, workers), group)),
      .last_heads = static_cast<int32_t>(std::clamp<int64_t>(last_heads, 1, group))};
}

BackwardSections sections_of(const Problem& problem, const BackwardShape& shape, const BackwardSplit& split,
                             int64_t per_list, int64_t workers) {
  per_list = std::max<int64_t>(per_list, 1);
  int64_t heads = heads_at_once(problem, shape, split, workers) / problem.group_size();
  // Short items find their rows in L2 however few heads there are. Pass CTAs want many sections.
  if (shape.section_units == 0 && shape.store != BackwardStore::kOrdered && split.group_items > 0)
    heads = ceil_div(static_cast<int64_t>(tuned::kPassMinItems * static_cast<double>(workers)), per_list);
  heads = std::clamp<int64_t>(std::max<int64_t>(heads, split.kv_heads), 1, problem.heads_kv);
  const int64_t last_heads =
      std::clamp<int64_t>(ceil_div(split.last_rounds * workers, per_list), 1, problem.heads_kv);
  return {.section_heads = static_cast<int32_t>(heads),
          .last_section = static_cast<int32_t>((problem.heads_kv - last_heads) / heads),
          .heads_kv = static_cast<int32_t>(problem.heads_kv),
          .group = static_cast<int32_t>(problem.group_size())};
}

}  // namespace longspan::sm90
