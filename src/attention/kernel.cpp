#include "attention/kernel.h"

#include <fmt/format.h>

namespace longspan {

std::string lacking(const Features& features, const Problem& problem) {
  if (!features.head_dim_v && problem.dim_v() != problem.head_dim) {
    return fmt::format("supports head_dim_v == head_dim only, not {} and {}", problem.dim_v(),
                       problem.head_dim);
  }
  if (!features.softcap && problem.softcap != 0) return "has no softcap";
  if (!features.alibi && !problem.alibi_slopes.empty()) return "has no ALiBi";
  if (!features.sinks && !problem.sinks.empty())
    return "takes no sinks with the problem: pass them to its calls";
  return "";
}

PlanNotes Plan::notes() const {
  return {};
}

}  // namespace longspan
