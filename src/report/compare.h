// Two sets of results side by side: each case's speed ratio, with an interval and a verdict.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/bootstrap.h"
#include "report/results.h"
#include "report/table.h"

namespace longspan::report {

enum class Verdict : uint8_t { kFaster, kSlower, kSame, kAmbiguous };
std::string_view name_of(Verdict verdict);

struct CompareOptions {
  double tolerance = 0.02;  // a ratio within 1 / (1 + t) .. 1 + t counts as the same
  double confidence = 0.95;
  int replicates = 2000;  // of the bootstrap
  uint64_t seed = 42;     // of its generator, so the same files give the same result
};

// A case that both sets measured. The ratio is b's speed over a's: above 1, b is faster.
struct Comparison {
  const CaseRecord* a = nullptr;
  const CaseRecord* b = nullptr;
  double ratio = 1;
  std::optional<Interval> interval;  // of the ratio; absent if neither samples nor intervals were recorded
  Verdict verdict = Verdict::kAmbiguous;
};

// A case that A measured and B did not.
struct Unmatched {
  const CaseRecord* a = nullptr;
  const CaseRecord* b = nullptr;  // B's record of it, failed or skipped; null if B has none

  std::string why() const;  // "failed in B: out of memory", "skipped in B: needs sm_90", "missing in B"
};

struct CompareReport {
  std::vector<Comparison> both;
  std::vector<Unmatched> only_a;
  std::vector<const CaseRecord*> only_b;  // measured in B only
  std::vector<std::string> warnings;      // differences that make the sets hard to compare

  int count(Verdict verdict) const;
  // Cases whose whole interval lies below `bound`: slower than allowed by more than the noise of the samples.
  // Without an interval the ratio itself decides.
  std::vector<const Comparison*> below(double bound) const;
};

// The report points into a and b, which must outlive it. Throws an input error if a set has no case, or the
// two have none in common.
CompareReport compare(const Results& a, const Results& b, const CompareOptions& options);

// The interval of the ratio of two cases' times (a over b), from their samples: docs/reference/metrics.md.
std::optional<Interval> ratio_interval(const CaseRecord& a, const CaseRecord& b, double confidence,
                                       Bootstrap& bootstrap);

Verdict verdict_of(const Interval& interval, double tolerance);

std::string format_comparison(const CompareReport& report, const CompareOptions& options,
                              const TableOptions& table);
std::string comparison_json(const CompareReport& report, const CompareOptions& options);

}  // namespace longspan::report
