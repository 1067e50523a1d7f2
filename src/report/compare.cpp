#include "report/compare.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/printable.h"
#include "report/format.h"

namespace longspan::report {
namespace {

// With fewer samples, a resampled median takes too few distinct values for meaningful quantiles.
constexpr size_t kFewestSamples = 5;

// If the ceilings differ by more than this, the machines were not in the same state.
constexpr double kCeilingDrift = 0.05;

using SortedSamples = std::vector<std::vector<double>>;  // one list per mask

// The samples of the masks that both cases measured, paired; empty if any list is too short.
std::optional<std::pair<SortedSamples, SortedSamples>> paired_samples(const CaseRecord& a,
                                                                      const CaseRecord& b) {
  std::map<int64_t, const Measurement*> of_b;
  for (const Measurement& m : b.measurements) of_b[m.index] = &m;
  std::pair<SortedSamples, SortedSamples> pairs;
  for (const Measurement& m : a.measurements) {
    const auto found = of_b.find(m.index);
    if (found == of_b.end()) continue;
    pairs.first.push_back(m.samples_s);
    pairs.second.push_back(found->second->samples_s);
  }
  for (auto* side : {&pairs.first, &pairs.second}) {
    for (auto& samples : *side) {
      if (samples.size() < kFewestSamples) return std::nullopt;
      std::sort(samples.begin(), samples.end());
    }
  }
  if (pairs.first.empty()) return std::nullopt;
  return pairs;
}

// Replicates of the sum of the masks' medians. Every mask of either side has a stream of its own, up to as
// many as are worth their memory.
std::vector<double> resampled_times(const SortedSamples& masks, uint64_t side, Bootstrap& bootstrap) {
  constexpr size_t kStreams = 64;
  std::vector<double> times(bootstrap.replicates());
  for (size_t mask = 0; mask < masks.size(); ++mask) {
    const std::vector<MiddlePlaces>& places =
        bootstrap.places(2 * (mask % kStreams) + side, masks[mask].size());
    for (size_t i = 0; i < times.size(); ++i) times[i] += places[i].median_of(masks[mask]);
  }
  return times;
}

// Nothing if times so far apart were recorded that their ratio is no number.
std::optional<Interval> bootstrap_interval(const SortedSamples& a, const SortedSamples& b, double confidence,
                                           Bootstrap& bootstrap) {
  std::vector<double> ratios = resampled_times(a, 0, bootstrap);
  const std::vector<double> times_b = resampled_times(b, 1, bootstrap);
  for (size_t i = 0; i < ratios.size(); ++i) {
    ratios[i] /= times_b[i];
    if (std::isnan(ratios[i])) return std::nullopt;
  }
  const double tail = (1 - confidence) / 2 * static_cast<double>(ratios.size());
  const auto cut = static_cast<ptrdiff_t>(std::min(static_cast<size_t>(tail), (ratios.size() - 1) / 2));
  const auto lo = ratios.begin() + cut, hi = ratios.end() - 1 - cut;
  std::nth_element(ratios.begin(), lo, ratios.end());
  if (lo != hi) std::nth_element(lo + 1, hi, ratios.end());
  return Interval{*lo, *hi};
}

// The interval without enough samples. The recorded intervals of the two times are taken as independent and
// added in quadrature on a log scale, each side separately.
std::optional<Interval> combined_interval(const CaseRecord& a, const CaseRecord& b) {
  if (!a.interval_s || !b.interval_s) return std::nullopt;
  const double ratio = std::log(*a.time_s / *b.time_s);
  const auto up = [](const CaseRecord& c) { return std::log(std::max(1.0, c.interval_s->hi / *c.time_s)); };
  const auto down = [](const CaseRecord& c) { return std::log(std::max(1.0, *c.time_s / c.interval_s->lo)); };
  return Interval{std::exp(ratio - std::hypot(down(a), up(b))), std::exp(ratio + std::hypot(up(a), down(b)))};
}

using ById = std::map<std::string_view, const CaseRecord*>;

// The record of each case: of several files, the last that measured it; in one file, the last of all.
ById records(const Results& results, std::string_view name, std::vector<std::string>& warnings) {
  LONGSPAN_CHECK_INPUT(!results.cases.empty(), "{} has no case to compare; is its run complete?", name);
  ById by_id;
  size_t repeated = 0;
  for (const CaseRecord& c : results.cases) {
    const CaseRecord*& kept = by_id[c.id];
    const bool measured = c.status == Status::kOk;
    repeated += kept != nullptr && measured && kept->status == Status::kOk;
    if (kept == nullptr || measured || results.run_of(*kept).source == results.run_of(c).source) kept = &c;
  }
  if (repeated > 0) {
    warnings.push_back(
        fmt::format("{} has {} repeated cases from {} setups; only the last of each is compared", name,
                    repeated, results.setups.size()));
  }
  return by_id;
}

const CaseRecord* find(const ById& records, std::string_view id) {
  const auto found = records.find(id);
  return found == records.end() ? nullptr : found->second;
}

bool measured(const CaseRecord* record) {
  return record != nullptr && record->status == Status::kOk;
}

void warn_of_difference(std::vector<std::string>& warnings, std::string_view what, const std::string& a,
                        const std::string& b) {
  if (a == b) return;
  std::string warning =
      fmt::format("{} differs: {} and {}", what, a.empty() ? "unknown" : a, b.empty() ? "unknown" : b);
  if (std::find(warnings.begin(), warnings.end(), warning) == warnings.end())
    warnings.push_back(std::move(warning));
}

// Warns of differences between the machines and builds of two runs, apart from the code under test.
void warn_of_machines(std::vector<std::string>& warnings, const RunRecord& a, const RunRecord& b) {
  warn_of_difference(warnings, "device", a.device_name(), b.device_name());
  warn_of_difference(warnings, "number of threads or multiprocessors", fact_text(a.device.facts(), "units"),
                     fact_text(b.device.facts(), "units"));
  warn_of_difference(warnings, "kind of machine", fact_text(a.machine.facts(), "kind"),
                     fact_text(b.machine.facts(), "kind"));
  warn_of_difference(warnings, "environment", fact_text(a.machine.facts(), "settings"),
                     fact_text(b.machine.facts(), "settings"));
  warn_of_difference(warnings, "frequency governor", fact_text(a.machine.facts(), "governor"),
                     fact_text(b.machine.facts(), "governor"));
  warn_of_difference(warnings, "compiler", fact_text(a.software.facts(), "compiler"),
                     fact_text(b.software.facts(), "compiler"));
  warn_of_difference(warnings, "build type", fact_text(a.software.facts(), "build_type"),
                     fact_text(b.software.facts(), "build_type"));
  for (const auto& [dtype, ceiling] : a.ceilings) {
    const record::Ceiling* other = b.ceiling(dtype);
    if (other == nullptr) continue;
    const double change = other->flops_per_s / ceiling.flops_per_s;
    if (std::fabs(change - 1) <= kCeilingDrift) continue;
    const Unit unit = rate_unit(ceiling.flops_per_s);
    warn_of_difference(warnings, fmt::format("the {} ceiling", dtype),
                       fmt::format("{} {}", format_rate(ceiling.flops_per_s, unit), unit.name),
                       fmt::format("{} {} ({:+.0f} %)", format_rate(other->flops_per_s, unit), unit.name,
                                   100 * (change - 1)));
  }
}

std::string ratio_text(double ratio) {
  return fmt::format("{:.3f}", ratio);
}

nlohmann::json json_of(const CaseRecord& c) {
  return {{"id", c.id},
          {"case", case_title(c.workload)},
          {"kernel", c.workload.kernel},
          {"mask", c.workload.mask},
          {"seqlen", c.workload.seqlen},
          {"direction", c.workload.direction},
          {"dtype", c.workload.dtype}};
}

}  // namespace

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kFaster:
      return "faster";
    case Verdict::kSlower:
      return "slower";
    case Verdict::kSame:
      return "same";
    case Verdict::kAmbiguous:
      return "ambiguous";
  }
  LONGSPAN_CHECK(false, "verdict {} has no name", static_cast<int>(verdict));
  return "";
}

int CompareReport::count(Verdict verdict) const {
  return static_cast<int>(
      std::count_if(both.begin(), both.end(), [&](const Comparison& c) { return c.verdict == verdict; }));
}

std::vector<const Comparison*> CompareReport::below(double bound) const {
  std::vector<const Comparison*> found;
  for (const Comparison& c : both) {
    const double most = c.interval ? c.interval->hi : c.ratio;
    if (!(most >= bound)) found.push_back(&c);
  }
  return found;
}

std::string Unmatched::why() const {
  return b == nullptr ? "missing in B" : fmt::format("{} in B: {}", record::name_of(b->status), b->reason);
}

Verdict verdict_of(const Interval& interval, double tolerance) {
  if (interval.lo >= 1 / (1 + tolerance) && interval.hi <= 1 + tolerance) return Verdict::kSame;
  if (interval.lo > 1) return Verdict::kFaster;
  if (interval.hi < 1) return Verdict::kSlower;
  return Verdict::kAmbiguous;
}

std::optional<Interval> ratio_interval(const CaseRecord& a, const CaseRecord& b, double confidence,
                                       Bootstrap& bootstrap) {
  if (const auto samples = paired_samples(a, b))
    return bootstrap_interval(samples->first, samples->second, confidence, bootstrap);
  return combined_interval(a, b);
}

CompareReport compare(const Results& a, const Results& b, const CompareOptions& options) {
  LONGSPAN_CHECK_INPUT(options.tolerance >= 0 && options.tolerance < 1,
                       "tolerance {}: must be at least 0 and below 1", options.tolerance);
  LONGSPAN_CHECK_INPUT(options.confidence > 0 && options.confidence < 1,
                       "confidence {}: must be between 0 and 1", options.confidence);
  LONGSPAN_CHECK_INPUT(options.replicates >= 100, "replicates {}: must be at least 100", options.replicates);
  CompareReport report;
  for (const std::string& warning : a.warnings) report.warnings.push_back("A: " + warning);
  for (const std::string& warning : b.warnings) report.warnings.push_back("B: " + warning);
  const ById in_a = records(a, "A", report.warnings), in_b = records(b, "B", report.warnings);
  const bool common =
      std::any_of(in_a.begin(), in_a.end(), [&](const auto& entry) { return in_b.contains(entry.first); });
  LONGSPAN_CHECK_INPUT(common, "A and B have no case in common: {} in A, {} in B", in_a.size(), in_b.size());
  std::set<std::pair<int, int>> paired_runs;
  Bootstrap bootstrap(options.replicates, options.seed);
  for (const CaseRecord& c : a.cases) {
    if (find(in_a, c.id) != &c || !measured(&c)) continue;
    const CaseRecord* other = find(in_b, c.id);
    if (!measured(other)) {
      report.only_a.push_back({&c, other});
      continue;
    }
    if (paired_runs.insert({c.run_index, other->run_index}).second)
      warn_of_machines(report.warnings, a.run_of(c), b.run_of(*other));
    Comparison comparison{&c, other, *c.time_s / *other->time_s, std::nullopt, Verdict::kAmbiguous};
    comparison.interval = ratio_interval(c, *other, options.confidence, bootstrap);
    if (comparison.interval) comparison.verdict = verdict_of(*comparison.interval, options.tolerance);
    report.both.push_back(comparison);
  }
  for (const CaseRecord& c : b.cases) {
    if (find(in_b, c.id) == &c && measured(&c) && !measured(find(in_a, c.id))) report.only_b.push_back(&c);
  }
  return report;
}

std::string format_comparison(const CompareReport& report, const CompareOptions& options,
                              const TableOptions& table) {
  const auto paint = [&](const std::string& text, const char* code) {
    return table.colour ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : text;
  };
  size_t title_width = 4;
  for (const Comparison& c : report.both)
    title_width = std::max(title_width, display_width(printable(case_title(c.a->workload))));
  constexpr size_t kNumbers = 2 + 8 + 2 + 8 + 2 + 6 + 2 + 14 + 2 + 9;  // columns and gaps right of the title
  if (table.width > 0) {
    title_width = std::min(title_width, std::max<size_t>(16, static_cast<size_t>(table.width) -
                                                                 std::min<size_t>(kNumbers, table.width)));
  }
  std::string text;
  if (!report.both.empty()) {
    text += paint(fmt::format("{:<{}}  {:>8}  {:>8}  {:>6}  {:<14}  {}", "case", title_width, "A", "B",
                              "B / A", fmt::format("{:.0f} % interval", 100 * options.confidence), "verdict"),
                  "1") +
            "\n";
  }
  for (const Comparison& c : report.both) {
    std::string title = fit(printable(case_title(c.a->workload)), title_width);
    title.append(title_width - display_width(title), ' ');
    const std::string interval =
        c.interval ? fmt::format("[{}, {}]", ratio_text(c.interval->lo), ratio_text(c.interval->hi))
                   : "none recorded";
    const char* code = c.verdict == Verdict::kFaster   ? "32"
                       : c.verdict == Verdict::kSlower ? "31"
                       : c.verdict == Verdict::kSame   ? "2"
                                                       : "33";
    text += fmt::format("{}  {:>8}  {:>8}  {:>6}  {:<14}  {}\n", title, format_time(*c.a->time_s),
                        format_time(*c.b->time_s), ratio_text(c.ratio), interval,
                        paint(std::string(name_of(c.verdict)), code));
  }
  const auto heading = [&](std::string_view words) { text += "\n" + paint(std::string(words), "1") + "\n"; };
  const auto title = [](const CaseRecord& c) { return printable(case_title(c.workload)); };
  if (!report.only_a.empty()) heading("Measured in A only");
  for (const Unmatched& c : report.only_a) text += fmt::format("  {}: {}\n", title(*c.a), printable(c.why()));
  if (!report.only_b.empty()) heading("Measured in B only");
  for (const CaseRecord* c : report.only_b) text += fmt::format("  {}\n", title(*c));
  text += fmt::format(
      "{}{} cases in both: {} faster, {} slower, {} same (within {:.3g} %), {} ambiguous; B / A is the ratio "
      "of speeds\n",
      text.empty() ? "" : "\n", report.both.size(), report.count(Verdict::kFaster),
      report.count(Verdict::kSlower), report.count(Verdict::kSame), 100 * options.tolerance,
      report.count(Verdict::kAmbiguous));
  for (const std::string& warning : report.warnings)
    text += paint("warning: " + printable(warning), "33") + "\n";
  return text;
}

std::string comparison_json(const CompareReport& report, const CompareOptions& options) {
  nlohmann::json json = {{"tolerance", options.tolerance},    {"confidence", options.confidence},
                         {"cases", nlohmann::json::array()},  {"only_a", nlohmann::json::array()},
                         {"only_b", nlohmann::json::array()}, {"warnings", report.warnings}};
  for (const Comparison& c : report.both) {
    nlohmann::json entry = json_of(*c.a);
    entry["time_a_s"] = *c.a->time_s;
    entry["time_b_s"] = *c.b->time_s;
    entry["ratio"] = c.ratio;
    entry["interval"] = c.interval ? nlohmann::json{c.interval->lo, c.interval->hi} : nlohmann::json(nullptr);
    entry["verdict"] = name_of(c.verdict);
    json["cases"].push_back(std::move(entry));
  }
  for (const Unmatched& c : report.only_a) {
    json["only_a"].push_back(json_of(*c.a));
    json["only_a"].back()["why"] = c.why();
  }
  for (const CaseRecord* c : report.only_b) json["only_b"].push_back(json_of(*c));
  for (Verdict verdict : {Verdict::kFaster, Verdict::kSlower, Verdict::kSame, Verdict::kAmbiguous}) {
    json["counts"][std::string(name_of(verdict))] = report.count(verdict);
  }
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace longspan::report
