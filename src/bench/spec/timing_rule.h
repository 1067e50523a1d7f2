// The timing rule: when a measurement has enough samples. docs/reference/metrics.md derives it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace longspan::bench {

struct TimingRule {
  double warmup_s = 0.2;     // runs before the first sample, at least one
  int64_t min_samples = 10;  // before the interval is believed
  int64_t max_samples = 1000;
  double budget_s = 3;       // of samples, for each mask; the first sample is always taken
  double half_width = 0.02;  // enough: half the interval's width over the median is at most this
  double confidence = 0.95;  // of the interval of the median; not for a suite to choose
  bool cold_cache = true;    // each sample begins with no tensor in the last-level cache
  double timeout_s = 300;    // for a whole case, verification and all
  friend bool operator==(const TimingRule&, const TimingRule&) = default;
};

// What a suite's [rule] table and the command line may set, in one table.
struct RuleKey {
  std::string_view name;  // "half_width"; the option is --half-width
  std::string_view help;
  std::string_view values;  // what is allowed, for help and errors
  // Throws an input error that begins with the value; the caller adds where it stood.
  void (*set)(TimingRule& rule, std::string_view text);
};
std::span<const RuleKey> rule_keys();

// Throws an input error if the keys contradict each other (min_samples above max_samples).
void check(const TimingRule& rule);

}  // namespace longspan::bench
