#include "report/workload_summary.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

#include <fmt/format.h>

#include "base/error.h"
#include "base/printable.h"
#include "report/format.h"

namespace longspan::report {
namespace {

using CasesById = std::map<std::string, const CaseRecord*, std::less<>>;

// By setup.
std::vector<CasesById> cases_by_id(const Results& results) {
  std::vector<CasesById> setups(results.setups.size());
  for (const CaseRecord& c : results.cases) setups[static_cast<size_t>(results.setup_of(c))][c.id] = &c;
  return setups;
}

std::string contender_of(const Workload& w) {
  std::string text = fact_text(w.extra, "strategy");
  const std::string ranks = fact_text(w.extra, "ranks");
  for (const Fact& fact : w.extra) {
    if (fact.key != "strategy" && fact.key != "ranks") text += fmt::format(" {} {}", fact.key, fact.text);
  }
  if (!ranks.empty()) text += fmt::format(", {} ranks", ranks);
  text += (text.empty() ? "" : ", ") + w.kernel;
  if (!w.dtype.empty()) text += " " + w.dtype;
  return w.deterministic ? text + ", same bits" : text;
}

// A sum over cases of the largest rank's load, and of the mean one's.
struct Load {
  double most = 0, mean = 0;

  void add(const std::vector<double>& by_rank) {
    if (by_rank.empty()) return;
    most += *std::max_element(by_rank.begin(), by_rank.end());
    mean += std::accumulate(by_rank.begin(), by_rank.end(), 0.0) / static_cast<double>(by_rank.size());
  }
};

std::vector<double> tokens_by_rank(const record::ParallelRecord& p) {
  std::vector<double> tokens;
  for (const auto& ranges : p.plan.owned) {
    double sum = 0;
    for (const auto& [begin, end] : ranges) sum += static_cast<double>(end - begin);
    tokens.push_back(sum);
  }
  return tokens;
}

// What a rank does itself: its time without waiting for data.
std::vector<double> busy_by_rank(const record::ParallelRecord& p) {
  std::vector<double> busy = p.compute_s;
  for (const auto* part : {&p.reorder_s, &p.merge_s}) {
    for (size_t rank = 0; rank < std::min(busy.size(), part->size()); ++rank) busy[rank] += (*part)[rank];
  }
  return busy;
}

struct Step {
  double attention_s = 0, planning_s = 0;  // of the slowest replica
  Load tokens, pairs, time;
};

class Summing {
 public:
  Summing(const record::WorkloadRecord& record, const CasesById& cases) : record_(record), cases_(cases) {}

  WorkloadSummary summary() {
    WorkloadSummary summary;
    summary.workload = record_.workload;
    summary.hash = record_.hash;
    summary.layers = record_.layers;
    summary.steps = record_.steps.size();
    std::vector<Step> steps;
    for (const auto& replicas : record_.steps) {
      if (const std::optional<Step> step = step_of(replicas)) steps.push_back(*step);
    }
    summary.measured = steps.size();
    summary.reason = reason_;
    if (any_ != nullptr) summary.contender = contender_of(any_->workload);
    if (error_ > 0) summary.error = error_;
    if (steps.empty()) return summary;
    const auto over_steps = [&](auto&& value) {
      std::vector<double> values;
      values.reserve(steps.size());
      for (const Step& step : steps) values.push_back(value(step));
      return percentiles(std::move(values));
    };
    const auto layers = static_cast<double>(record_.layers);
    summary.attention_s = over_steps([](const Step& s) { return s.attention_s; });
    summary.planning_s = over_steps([](const Step& s) { return s.planning_s; });
    summary.with_planning_s =
        over_steps([&](const Step& s) { return s.attention_s + s.planning_s / layers; });
    const auto imbalance = [&](Load Step::*load) -> std::optional<double> {
      if (std::ranges::any_of(steps, [&](const Step& s) { return (s.*load).mean <= 0; })) return std::nullopt;
      return over_steps([&](const Step& s) { return (s.*load).most / (s.*load).mean; }).p50;
    };
    summary.tokens_imbalance = imbalance(&Step::tokens);
    summary.pairs_imbalance = imbalance(&Step::pairs);
    summary.time_imbalance = imbalance(&Step::time);
    return summary;
  }

 private:
  // nullopt if a case is missing or was not measured.
  std::optional<Step> step_of(const std::vector<std::vector<std::string>>& replicas) {
    Step step;
    if (std::ranges::all_of(replicas, [](const auto& ids) { return ids.empty(); }))
      return incomplete("a step has no case");
    for (const std::vector<std::string>& ids : replicas) {
      double attention_s = 0, forward_plan_s = 0, backward_plan_s = 0;
      for (const std::string& id : ids) {
        const auto found = cases_.find(id);
        if (found == cases_.end()) return incomplete("a case has no result");
        const CaseRecord& c = *found->second;
        any_ = &c;
        if (c.status != Status::kOk) return incomplete(fmt::format("{}: {}", name_of(c.status), c.reason));
        attention_s += *c.time_s;
        // The plan of a backward case makes both passes.
        (c.workload.direction == "backward" ? backward_plan_s : forward_plan_s) += c.plan_s.value_or(0);
        if (c.accuracy) {
          if (const auto worst = c.accuracy->worst())
            error_ = std::max(error_, worst->error / *worst->tolerance);
        }
        if (!c.parallel) continue;
        step.tokens.add(tokens_by_rank(*c.parallel));
        step.pairs.add(c.parallel->area);
        step.time.add(busy_by_rank(*c.parallel));
      }
      step.attention_s = std::max(step.attention_s, attention_s);
      step.planning_s = std::max(step.planning_s, backward_plan_s > 0 ? backward_plan_s : forward_plan_s);
    }
    return step;
  }

  std::optional<Step> incomplete(const std::string& reason) {
    if (reason_.empty()) reason_ = reason;
    return std::nullopt;
  }

  const record::WorkloadRecord& record_;
  const CasesById& cases_;
  const CaseRecord* any_ = nullptr;
  std::string reason_;
  double error_ = 0;
};

record::Json json_of(const std::optional<Percentiles>& p) {
  if (!p) return nullptr;
  return {{"p50", p->p50}, {"p95", p->p95}, {"p99", p->p99}};
}

}  // namespace

Percentiles percentiles(std::vector<double> values) {
  LONGSPAN_CHECK(!values.empty(), "percentiles of nothing");
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
    return values[std::max<size_t>(rank, 1) - 1];
  };
  return {at(0.50), at(0.95), at(0.99)};
}

std::vector<WorkloadSummary> summarise_workloads(const Results& results) {
  const std::vector<CasesById> setups = cases_by_id(results);
  std::vector<WorkloadSummary> summaries;
  for (const WorkloadRecord& record : results.workloads) {
    // A resumed run with another build has the cases of one line in two setups of its file.
    std::vector<size_t> homes;
    for (size_t i = 0; i < setups.size(); ++i) {
      const Setup& setup = results.setups[i];
      const std::string& source = results.runs[static_cast<size_t>(setup.runs.front())].source;
      if (source == record.source) homes.push_back(i);
    }
    for (const size_t home : homes) {
      WorkloadSummary summary = Summing(record, setups[home]).summary();
      if (summary.contender.empty()) continue;
      summary.setup = results.setups[home].label;
      summaries.push_back(std::move(summary));
    }
  }
  std::stable_sort(summaries.begin(), summaries.end(), [](const auto& a, const auto& b) {
    // A contender that lacks steps does not compete: the others' steps may be the longer ones.
    const auto key = [](const WorkloadSummary& s) {
      return std::tuple(std::string_view(s.setup), std::string_view(s.workload), std::string_view(s.hash),
                        s.steps, s.layers, s.steps - s.measured,
                        s.with_planning_s ? s.with_planning_s->p50 : 0);
    };
    return key(a) < key(b);
  });
  return summaries;
}

std::set<const CaseRecord*> cases_of_workloads(const Results& results) {
  std::set<std::pair<std::string_view, std::string_view>> named;  // by source, id
  for (const WorkloadRecord& record : results.workloads) {
    for (const auto& replicas : record.steps) {
      for (const auto& ids : replicas) {
        for (const std::string& id : ids) named.insert({record.source, id});
      }
    }
  }
  std::set<const CaseRecord*> cases;
  for (const CaseRecord& c : results.cases) {
    if (named.contains({results.run_of(c).source, c.id})) cases.insert(&c);
  }
  return cases;
}

std::string format_workloads(const std::vector<WorkloadSummary>& summaries, int width) {
  if (summaries.empty()) return "";
  size_t widest = 0;
  for (const WorkloadSummary& s : summaries) widest = std::max(widest, display_width(printable(s.contender)));
  // Columns are dropped from the right until the table fits.
  constexpr size_t kCell = 9, kGap = 2, kFewest = 3;
  size_t shown = 9;
  while (width > 0 && shown > kFewest && widest + shown * (kGap + kCell) > static_cast<size_t>(width))
    --shown;
  std::string text;
  const auto row = [&](const std::string& contender, const std::vector<std::string>& cells) {
    text += contender + std::string(widest - display_width(contender), ' ');
    for (size_t i = 0; i < shown; ++i) text += fmt::format("{:>{}}", cells[i], kGap + kCell);
    text.erase(text.find_last_not_of(' ') + 1);
    text += "\n";
  };
  const auto time = [](const std::optional<Percentiles>& p, double Percentiles::*which) {
    return p ? format_time((*p).*which) : "";
  };
  const auto ratio = [](const std::optional<double>& value) {
    return value ? fmt::format("{:.2f}", *value) : "";
  };
  std::string heading;
  for (const WorkloadSummary& s : summaries) {
    const auto plural = [](size_t n, const char* word) {
      return fmt::format("{} {}{}", n, word, n == 1 ? "" : "s");
    };
    const std::string here =
        fmt::format("Workload {}: {}, {} ({}; hash {})", printable(s.workload), plural(s.steps, "step"),
                    plural(static_cast<size_t>(s.layers), "layer"), printable(s.setup), printable(s.hash));
    if (here != heading) {
      heading = here;
      text += fmt::format("\n{}\n", here);
      row("", {"p50", "p95", "p99", "planning", "with it", "tokens", "pairs", "time", "steps"});
    }
    row(printable(s.contender),
        {time(s.attention_s, &Percentiles::p50), time(s.attention_s, &Percentiles::p95),
         time(s.attention_s, &Percentiles::p99), time(s.planning_s, &Percentiles::p50),
         time(s.with_planning_s, &Percentiles::p50), ratio(s.tokens_imbalance), ratio(s.pairs_imbalance),
         ratio(s.time_imbalance), fmt::format("{}/{}", s.measured, s.steps)});
    if (!s.reason.empty()) text += fmt::format("  {}\n", printable(s.reason));
  }
  text += "\n";
  for (const std::string& note :
       wrap("p50, p95, p99: one layer's attention in a step, both passes of all micro-batches. planning: of "
            "all micro-batches, once for all layers; with it: a layer's attention with its share. tokens, "
            "pairs, "
            "time: the largest rank's load over the mean one's. All but p95 and p99 are medians over the "
            "steps.",
            width > 0 ? static_cast<size_t>(width) : 118))
    text += note + "\n";
  return text;
}

record::Json workloads_json(const std::vector<WorkloadSummary>& summaries) {
  record::Json list = record::Json::array();
  const auto number = [](const std::optional<double>& value) {
    return value ? record::Json(*value) : record::Json();
  };
  for (const WorkloadSummary& s : summaries) {
    list.push_back({{"workload", s.workload},
                    {"hash", s.hash},
                    {"layers", s.layers},
                    {"setup", s.setup},
                    {"contender", s.contender},
                    {"steps", s.steps},
                    {"measured", s.measured},
                    {"reason", s.reason},
                    {"attention", json_of(s.attention_s)},
                    {"planning", json_of(s.planning_s)},
                    {"with_planning", json_of(s.with_planning_s)},
                    {"tokens", number(s.tokens_imbalance)},
                    {"pairs", number(s.pairs_imbalance)},
                    {"time", number(s.time_imbalance)},
                    {"error", number(s.error)}});
  }
  return list;
}

}  // namespace longspan::report
