#include "bench/simulate/against.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <sstream>

#include "base/error.h"
#include "base/input_file.h"
#include "bench/simulate/predict.h"
#include "bench/spec/values.h"
#include "record/results_file.h"

namespace longspan::bench {
namespace {

bool described(const Case& c, const Machine& machine) {
  const auto kernel = machine.kernels.find(c.kernel);
  if (kernel == machine.kernels.end() || !kernel->second.takes(c)) return false;
  if (c.mask_is_file() || c.deterministic || c.sinks || c.softcap != 0 || c.alibi) return false;
  if (!c.parallelism) return true;
  const auto links = machine.links.find(std::string(name_of(c.parallelism.transport)));
  if (links == machine.links.end()) return false;
  const Topology topology = c.parallelism.topology();
  return topology.devices <= machine.gpus_per_node &&
         (topology.nodes == 1 || links->second.interface_bytes_per_s > 0);
}

Parts parts_of(const std::optional<record::ParallelRecord>& record) {
  if (!record) return {};
  const auto mean = [](const std::vector<double>& list) {
    return list.empty() ? 0
                        : std::accumulate(list.begin(), list.end(), 0.0) / static_cast<double>(list.size());
  };
  const auto& held = record->held_bytes;
  const double most = held.empty() ? 0 : *std::max_element(held.begin(), held.end());
  return {mean(record->compute_s), mean(record->exposed_s), mean(record->reorder_s), mean(record->merge_s),
          most};
}

// The problem that strategies compete on.
std::string contest_of(const Case& c) {
  Case alone = c;
  alone.parallelism = {};
  std::string text = describe(alone);
  if (!c.lengths.empty()) text += fmt::format(", lengths {}", c.lengths);
  if (c.masks > 1) text += fmt::format(", {} masks", c.masks);
  const Topology topology = c.parallelism.topology();
  text += fmt::format(", {} ranks", topology.ranks());
  if (topology.nodes > 1) text += fmt::format(" of {} nodes", topology.nodes);
  return text + fmt::format(", {}", name_of(c.parallelism.transport));
}

const Compared* fastest(const std::vector<const Compared*>& cases, double Compared::*time) {
  return *std::min_element(cases.begin(), cases.end(),
                           [&](const Compared* a, const Compared* b) { return a->*time < b->*time; });
}

void read_cases(const std::string& path, const Machine& machine, std::vector<Compared>& cases,
                std::map<std::string, size_t>& place_of) {
  std::istringstream lines(read_input_file(path, kResultsFile));
  std::string text;
  for (int64_t number = 1; std::getline(lines, text); ++number) {
    if (text.empty()) continue;
    try {
      const record::ResultsLine line = record::parse_results_line(text);
      if (line.type != record::ResultsLine::Type::kCase) continue;
      const record::CaseRecord record = record::case_from(line);
      if (record.status != record::Status::kOk || !record.time_s) continue;
      const Case c = case_from_json(nlohmann::json(record.workload.json));
      if (!described(c, machine)) continue;
      const auto [place, fresh] = place_of.try_emplace(record.id, cases.size());
      if (fresh) cases.emplace_back();
      cases[place->second] = {c, *record.time_s, 0, parts_of(record.parallel), {}};
    } catch (const Error& error) {
      LONGSPAN_CHECK_INPUT(error.kind() != ErrorKind::kInput, "{}, line {}: {}", path, number, error.what());
      throw;
    }
  }
}

}  // namespace

double Compared::error() const {
  return std::abs(predicted_s / measured_s - 1);
}

std::vector<Compared> measured_cases(const std::vector<std::string>& paths, const Machine& machine) {
  std::vector<Compared> cases;
  std::map<std::string, size_t> place_of;  // by id
  for (const std::string& path : paths) read_cases(path, machine, cases, place_of);
  return cases;
}

const Compared* nearest(const std::vector<Compared>& cases, const Case& c) {
  const auto doublings = [](int64_t a, int64_t b) {
    return std::abs(std::log2(static_cast<double>(a) / static_cast<double>(b)));
  };
  const auto distance = [&](const Case& other) {
    const Parallelism &p = c.parallelism, &q = other.parallelism;
    constexpr double kOtherMask = 8, kOtherShape = 4, kOtherTransport = 2;  // in doublings
    double sum = doublings(other.seqlen / q.ranks, c.seqlen / p.ranks) + doublings(q.ranks, p.ranks) +
                 doublings(q.topology().nodes, p.topology().nodes);
    if (other.mask != c.mask) sum += kOtherMask;
    if (other.heads_q != c.heads_q || other.heads_kv != c.heads_kv || other.head_dim != c.head_dim)
      sum += kOtherShape;
    if (p.transport != q.transport) sum += kOtherTransport;
    return sum;
  };
  const Compared* best = nullptr;
  for (const Compared& each : cases) {
    if (each.c.kernel != c.kernel || each.c.direction != c.direction || !each.c.parallelism ||
        each.c.parallelism.strategy != c.parallelism.strategy)
      continue;
    if (best == nullptr || distance(each.c) < distance(best->c)) best = &each;
  }
  return best;
}

std::vector<Compared> compare_with(const std::vector<std::string>& paths, const Machine& machine,
                                   const std::function<void(const std::string&)>& progress) {
  std::vector<Compared> cases = measured_cases(paths, machine);
  for (Compared& each : cases) {
    if (progress) progress(describe(each.c));
    const record::CaseRecord record = predict(each.c, machine).record;
    each.predicted_s = *record.time_s;
    each.predicted = parts_of(record.parallel);
  }
  return cases;
}

std::vector<Choice> choices(const std::vector<Compared>& cases) {
  std::map<std::string, std::vector<const Compared*>> groups;
  for (const Compared& each : cases) {
    if (each.c.parallelism) groups[contest_of(each.c)].push_back(&each);
  }
  std::vector<Choice> list;
  for (const auto& [what, group] : groups) {
    if (group.size() < 2) continue;
    const Compared* chosen = fastest(group, &Compared::predicted_s);
    const Compared* best = fastest(group, &Compared::measured_s);
    list.push_back({what, describe_strategy(chosen->c.parallelism), describe_strategy(best->c.parallelism),
                    chosen->measured_s / best->measured_s - 1});
  }
  return list;
}

}  // namespace longspan::bench
