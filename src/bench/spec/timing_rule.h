// The keys of the timing rule, which a suite and the command line can set.
#pragma once

#include <span>
#include <string_view>

#include "record/timing_rule.h"

namespace longspan::bench {

using record::TimingRule;

// One key of a suite's [rule] table, and one option of the command line.
struct RuleKey {
  std::string_view name;  // "half_width"; the option is --half-width
  std::string_view help;
  std::string_view values;  // what is allowed, for help and errors
  // Throws an input error that begins with the value; the caller adds the location.
  void (*set)(TimingRule& rule, std::string_view text);
};
std::span<const RuleKey> rule_keys();

// Throws an input error if the keys contradict each other (min_samples above max_samples).
void check(const TimingRule& rule);

}  // namespace longspan::bench
