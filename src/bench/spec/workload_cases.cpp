#include "bench/spec/workload_cases.h"

#include <map>
#include <set>

#include "base/error.h"

namespace longspan::bench {
namespace {

constexpr size_t kMostCases = 100000;

bool fixed_by_workload(std::string_view axis) {
  for (const std::string_view name : {"mask", "seqlen", "heads", "head_dim", "masks", "lengths", "direction"})
    if (axis == name) return true;
  return find_option(pattern_options(), axis) != nullptr;
}

void set(Group& group, std::string_view axis, const std::string& text) {
  group.values[std::string(axis)] = {{text, "--workload"}};
}

// What all micro-batches of a workload have in common.
Group common_group(const Workload& w, const Group& given) {
  for (const auto& [axis, values] : given.values)
    LONGSPAN_CHECK_INPUT(!fixed_by_workload(axis), "{} cannot be combined with --workload, which says it",
                         option_name(axis));
  Group group = given;
  const auto unset = [&](const char* axis) { return !given.values.contains(axis); };
  set(group, "heads", fmt::format("{}:{}", w.heads_q_per_gpu(), w.heads_kv_per_gpu()));
  set(group, "head_dim", fmt::format("{}", w.head_dim));
  if (unset("dtype")) set(group, "dtype", std::string(name_of(w.dtype)));
  group.values["direction"] = {{"forward", "--workload"}, {"backward", "--workload"}};
  if (!unset("strategy") && unset("ranks") && unset("topology")) {
    LONGSPAN_CHECK_INPUT(w.cp > 1, "--strategy needs --ranks: the workload was drawn for one rank (cp 1)");
    set(group, "ranks", fmt::format("{}", w.cp));
  }
  return group;
}

Group group_of(const WorkloadStep& step, const MicroBatch& batch, const Group& common) {
  Group group = common;
  set(group, "mask", step.mask);
  set(group, "seqlen", fmt::format("{}", tokens_of(batch)));
  set(group, "lengths", list_of_lengths(batch));
  for (const OptionSpec& option : pattern_from_name(step.mask).options)
    if (const OptionValue* value = step.options.find(option.name)) set(group, option.name, to_text(*value));
  return group;
}

// What tells contenders apart: all but the problem and the pass.
std::string contender_of(Case c) {
  c.mask.clear();
  c.options = {};
  c.lengths.clear();
  c.seqlen = 0;
  c.direction = Direction::kForward;
  return to_json(c).dump();
}

}  // namespace

WorkloadCases cases_of(const Workload& w, const Group& given, const std::vector<std::string>& all_kernels,
                       const std::vector<std::string>& offered, std::span<const KernelRow> rows) {
  WorkloadCases result;
  std::map<std::string, size_t> series;
  std::set<std::string> seen;
  const Group common = common_group(w, given);
  const auto replicas = static_cast<size_t>(w.dp);
  for (size_t s = 0; s < w.steps.size(); ++s) {
    const WorkloadStep& step = w.steps[s];
    for (size_t b = 0; b < step.micro_batches.size(); ++b) {
      Suite suite;
      suite.name = "workload";
      suite.groups = {group_of(step, step.micro_batches[b], common)};
      for (Case& c : expand(suite, all_kernels, offered, rows)) {
        const auto at = series.try_emplace(contender_of(c), result.series.size()).first->second;
        if (at == result.series.size()) {
          result.series.emplace_back().steps.resize(w.steps.size(),
                                                    std::vector<std::vector<std::string>>(replicas));
        }
        const std::string id = id_of(c);
        result.series[at].steps[s][b % replicas].push_back(id);
        if (seen.insert(id).second) result.cases.push_back(std::move(c));
        LONGSPAN_CHECK_INPUT(result.cases.size() <= kMostCases,
                             "--workload makes more than {} cases; give fewer steps, kernels or strategies",
                             kMostCases);
      }
    }
  }
  return result;
}

}  // namespace longspan::bench
