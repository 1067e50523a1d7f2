// The keys of the timing rule, as a suite and the command line set them.
#pragma once

#include <span>
#include <string_view>

#include "record/timing_rule.h"

namespace longspan::bench {

using record::TimingRule;

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
