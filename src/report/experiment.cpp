#include "report/experiment.h"

#include <algorithm>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "base/error.h"
#include "base/printable.h"
#include "report/format.h"

namespace longspan::report {
namespace {

// A field of a case in the form of the command line; empty if it has none.
std::string field_of(const Workload& w, std::string_view field) {
  if (field == "kernel") return w.kernel;
  if (field == "mask") return w.mask;
  if (field == "seqlen") return format_seqlen(w.seqlen);
  if (field == "heads") return heads_title(w);
  if (field == "head_dim") return fmt::format("{}", w.head_dim);
  if (field == "dtype") return w.dtype;
  if (field == "direction") return w.direction;
  if (field == "lengths") return w.lengths;
  if (field == "masks") return fmt::format("{}", w.masks);
  if (field == "deterministic") return w.deterministic ? "true" : "";
  if (field == "tokens_per_rank") {
    const double ranks = record::fact_number(w.extra, "ranks").value_or(0);
    return ranks < 1 ? "" : format_seqlen(static_cast<int64_t>(static_cast<double>(w.seqlen) / ranks));
  }
  const std::string option = fact_text(w.option_facts, field);
  return option.empty() ? fact_text(w.extra, field) : option;
}

// What a strategy does with its ranks (degrees, placement) is not among them: the best counts.
constexpr std::string_view kSharedFields[] = {"kernel",  "mask",          "seqlen",     "heads", "head_dim",
                                              "dtype",   "direction",     "lengths",    "masks", "block",
                                              "density", "deterministic", "head_dim_v", "sinks", "softcap",
                                              "alibi",   "strategy",      "ranks",      "nodes", "transport"};

// Those of them that a reader needs beside a finding.
constexpr std::string_view kContextFields[] = {"kernel",  "mask",     "seqlen", "heads",    "dtype",
                                               "lengths", "strategy", "nodes",  "transport"};

// The fields that both sides of a claim have in common.
std::vector<std::string_view> shared_fields(const Claim& claim) {
  std::vector<std::string_view> shared;
  const auto free = [&](std::string_view field) {
    return claim.a.contains(field) || claim.b.contains(field);
  };
  for (const std::string_view field : kSharedFields) {
    const bool of_mask = field == "lengths" || field == "masks";
    if (field != claim.over && !free(field) && !(of_mask && free("mask"))) shared.push_back(field);
  }
  return shared;
}

// The side's own fields, as they distinguish a case: "fa3", "usp".
std::string contender(const CaseRecord& c, const Selection& side) {
  std::string text;
  for (const auto& [field, values] : side)
    text += fmt::format("{}{}", text.empty() ? "" : " ", field_of(c.workload, field));
  return text;
}

std::string all_of(const Selection& side) {
  std::string text;
  for (const auto& [field, values] : side) {
    for (const std::string& value : values) text += fmt::format("{}{}", text.empty() ? "" : ", ", value);
  }
  return text;
}

std::string unmeasured_text(const CaseRecord& c, const Selection& side) {
  return fmt::format("{} {}: {}", contender(c, side), name_of(c.status), c.reason);
}

class Evaluation {
 public:
  Evaluation(const Claim& claim, const Results& results) : claim_(claim), results_(results) {}

  ClaimResult result() {
    ClaimResult result{&claim_, Agreement::kNotMeasured, {}};
    for (const std::string& value : claim_.where.at(claim_.over)) {
      for (Finding& finding : findings_at(value)) result.findings.push_back(std::move(finding));
    }
    size_t agree = 0, differ = 0;
    for (const Finding& finding : result.findings) {
      agree += finding.agreement == Agreement::kAgrees ? 1 : 0;
      differ += finding.agreement == Agreement::kDiffers ? 1 : 0;
    }
    if (agree + differ > 0)
      result.agreement = differ == 0  ? Agreement::kAgrees
                         : agree == 0 ? Agreement::kDiffers
                                      : Agreement::kInPart;
    return result;
  }

 private:
  // The cases of both sides that do the same work.
  struct Sides {
    std::string context;
    std::vector<const CaseRecord*> a, b;
  };

  std::vector<Finding> findings_at(const std::string& value) const {
    std::map<std::string, Sides> works;
    const std::vector<std::string_view> fields = shared_fields(claim_);
    for (const CaseRecord& c : results_.cases) {
      if (field_of(c.workload, claim_.over) != value || !selects(claim_.where, c.workload)) continue;
      const bool in_a = selects(claim_.a, c.workload);
      const bool in_b = !claim_.compare.empty() && selects(claim_.b, c.workload);
      if (!in_a && !in_b) continue;
      std::string key, context;
      for (const std::string_view field : fields) {
        const std::string text = field_of(c.workload, field);
        key += text + "\n";
        const auto given = claim_.where.find(field);
        const bool said = given != claim_.where.end() && given->second.size() == 1;
        const bool shown = std::find(std::begin(kContextFields), std::end(kContextFields), field) !=
                           std::end(kContextFields);
        if (shown && !text.empty() && !said) context += fmt::format("{}{}", context.empty() ? "" : " ", text);
      }
      Sides& sides = works[key];
      sides.context = context;
      if (in_a) sides.a.push_back(&c);
      if (in_b) sides.b.push_back(&c);
    }
    std::vector<Finding> findings;
    findings.reserve(works.size());
    for (const auto& [key, sides] : works)
      findings.push_back(claim_.compare.empty() ? outcome_of(sides) : comparison_of(sides));
    // Work that only one side has says nothing if the same value was compared elsewhere.
    const auto measured = [](const Finding& f) { return f.agreement != Agreement::kNotMeasured; };
    if (std::any_of(findings.begin(), findings.end(), measured))
      std::erase_if(findings, [&](const Finding& f) { return !measured(f); });
    else if (findings.size() > 1)
      findings.erase(findings.begin() + 1, findings.end());
    if (findings.empty()) findings.push_back(unmeasured({}));
    for (Finding& finding : findings) finding.at = value;
    return findings;
  }

  Finding outcome_of(const Sides& sides) const {
    const CaseRecord& last = *sides.a.back();
    const bool agrees =
        name_of(last.status) == claim_.outcome && last.reason.find(claim_.reason) != std::string::npos;
    if (!agrees && last.status != Status::kOk) return unmeasured(sides);
    Finding finding{.context = sides.context, .a = &last};
    finding.agreement = agrees ? Agreement::kAgrees : Agreement::kDiffers;
    finding.a_text = agrees ? unmeasured_text(last, claim_.a)
                            : fmt::format("{}: measured, {}", contender(last, claim_.a), value_text(last));
    return finding;
  }

  std::optional<double> value_of(const CaseRecord& c, bool share) const {
    if (c.status != Status::kOk) return std::nullopt;
    if (claim_.compare == "memory") {
      if (!c.peak_bytes || *c.peak_bytes <= 0) return std::nullopt;
      return static_cast<double>(*c.peak_bytes);
    }
    return share ? c.share_of_ceiling : c.flops_per_s;
  }

  std::string value_text(const CaseRecord& c) const {
    if (claim_.compare == "memory") return format_bytes(static_cast<double>(*c.peak_bytes));
    if (!c.flops_per_s) return "";
    const double rate = c.flops_per_s_per_rank.value_or(*c.flops_per_s);
    const Unit unit = rate_unit(rate);
    return fmt::format("{} {}{}", format_rate(rate, unit), unit.name,
                       c.flops_per_s_per_rank ? " per rank" : "");
  }

  // The highest rate, or the least memory.
  const CaseRecord* best(const std::vector<const CaseRecord*>& cases, bool share) const {
    const CaseRecord* best = nullptr;
    for (const CaseRecord* c : cases) {
      const auto value = value_of(*c, share);
      if (!value) continue;
      const bool better = best == nullptr || (claim_.compare == "memory" ? *value < *value_of(*best, share)
                                                                         : *value > *value_of(*best, share));
      if (better) best = c;
    }
    return best;
  }

  // Devices differ, so shares of their ceilings are compared where every case has one.
  Finding comparison_of(const Sides& sides) const {
    const auto has_share = [](const CaseRecord* c) {
      return c->status != Status::kOk || c->share_of_ceiling;
    };
    const bool share = std::all_of(sides.a.begin(), sides.a.end(), has_share) &&
                       std::all_of(sides.b.begin(), sides.b.end(), has_share);
    const CaseRecord* a = best(sides.a, share);
    const CaseRecord* b = best(sides.b, share);
    if (a == nullptr || b == nullptr) return unmeasured(sides);
    Finding finding{.context = sides.context, .a = a, .b = b};
    finding.ratio = *value_of(*a, share) / *value_of(*b, share);
    finding.apart = results_.setup_of(*a) != results_.setup_of(*b);
    finding.a_text = fmt::format("{}: {}", contender(*a, claim_.a), value_text(*a));
    finding.b_text = fmt::format("{}: {}", contender(*b, claim_.b), value_text(*b));
    finding.agreement = finding.ratio >= claim_.at_least && finding.ratio <= claim_.at_most
                            ? Agreement::kAgrees
                            : Agreement::kDiffers;
    return finding;
  }

  Finding unmeasured(const Sides& sides) const {
    Finding finding{.context = sides.context};
    const auto explain = [&](const std::vector<const CaseRecord*>& cases, const Selection& side) {
      const bool measured =
          std::any_of(cases.begin(), cases.end(), [](auto* c) { return c->status == Status::kOk; });
      if (measured && !claim_.compare.empty()) return;
      const std::string why =
          cases.empty() ? fmt::format("no result of {}", all_of(side)) : unmeasured_text(*cases.back(), side);
      finding.reason += fmt::format("{}{}", finding.reason.empty() ? "" : "; ", why);
    };
    explain(sides.a, claim_.a);
    if (!claim_.compare.empty()) explain(sides.b, claim_.b);
    return finding;
  }

  const Claim& claim_;
  const Results& results_;
};

std::string ratio_text(const Finding& finding) {
  return finding.ratio > 0 ? three_digits(finding.ratio) : "";
}

}  // namespace

bool selects(const Selection& selection, const Workload& workload) {
  return std::all_of(selection.begin(), selection.end(), [&](const auto& field) {
    const auto& [name, values] = field;
    return std::find(values.begin(), values.end(), field_of(workload, name)) != values.end();
  });
}

std::string_view name_of(Agreement agreement) {
  switch (agreement) {
    case Agreement::kAgrees:
      return "agrees";
    case Agreement::kInPart:
      return "agrees in part";
    case Agreement::kDiffers:
      return "does not agree";
    case Agreement::kNotMeasured:
      return "not measured";
  }
  LONGSPAN_CHECK(false, "agreement {} has no name", static_cast<int>(agreement));
  return "";
}

std::string_view ClaimResult::otherwise() const {
  const bool needed = agreement == Agreement::kDiffers || agreement == Agreement::kInPart;
  return needed ? std::string_view(claim->otherwise) : std::string_view();
}

std::string ClaimResult::measured() const {
  std::set<std::string_view> values;
  for (const Finding& finding : findings) {
    if (finding.agreement != Agreement::kNotMeasured) values.insert(finding.at);
  }
  return fmt::format("{} of {}", values.size(), claim->where.at(claim->over).size());
}

std::vector<ClaimResult> evaluate(const Experiment& experiment, const Results& results) {
  std::vector<ClaimResult> claims;
  claims.reserve(experiment.claims.size());
  for (const Claim& claim : experiment.claims) claims.push_back(Evaluation(claim, results).result());
  return claims;
}

std::string format_experiment(const Experiment& experiment, const std::vector<ClaimResult>& claims,
                              const TableOptions& options) {
  const size_t width = options.width > 0 ? static_cast<size_t>(options.width) : SIZE_MAX;
  std::string text;
  const auto add = [&](const std::string& paragraph, size_t indent) {
    for (const std::string& line : wrap(printable(paragraph), width - indent))
      text += std::string(indent, ' ') + line + "\n";
  };
  add(fmt::format("{} ({})", experiment.title, experiment.paper), 0);
  for (const ClaimResult& result : claims) {
    const Claim& claim = *result.claim;
    text += "\n";
    add(fmt::format("{}: {}", name_of(result.agreement), claim.text), 0);
    add(fmt::format("measured: {}, by {}", result.measured(), claim.over), 2);
    add(fmt::format("paper: {}{}{}", claim.source, claim.figure.empty() ? "" : "; ", claim.figure), 2);
    for (const Finding& f : result.findings) {
      std::string line = fmt::format("{} {}  {}  ", claim.over, f.at, name_of(f.agreement));
      line += f.agreement == Agreement::kNotMeasured ? f.reason : f.a_text;
      if (f.ratio > 0) line += fmt::format("; {}; ratio {}", f.b_text, ratio_text(f));
      if (f.apart) line += ", of different runs";
      if (!f.context.empty()) line += fmt::format("  ({})", f.context);
      add(line, 4);
    }
    if (!result.otherwise().empty()) add(fmt::format("why: {}", result.otherwise()), 2);
  }
  return text;
}

record::Json experiment_json(const Experiment& experiment, const std::vector<ClaimResult>& claims) {
  record::Json json = {
      {"title", experiment.title}, {"paper", experiment.paper}, {"claims", record::Json::array()}};
  for (const ClaimResult& result : claims) {
    const Claim& claim = *result.claim;
    record::Json entry = {{"text", claim.text},
                          {"source", claim.source},
                          {"figure", claim.figure},
                          {"over", claim.over},
                          {"verdict", name_of(result.agreement)},
                          {"why", result.otherwise()},
                          {"measured", result.measured()},
                          {"findings", record::Json::array()}};
    for (const Finding& f : result.findings) {
      entry["findings"].push_back({{"at", f.at},
                                   {"context", f.context},
                                   {"a", f.a_text},
                                   {"b", f.b_text},
                                   {"ratio", ratio_text(f)},
                                   {"apart", f.apart},
                                   {"verdict", name_of(f.agreement)},
                                   {"reason", f.reason}});
    }
    json["claims"].push_back(std::move(entry));
  }
  return json;
}

}  // namespace longspan::report
