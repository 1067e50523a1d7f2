#include "bench/spec/timing_rule.h"

#include "base/error.h"
#include "bench/spec/values.h"

namespace longspan::bench {
namespace {

constexpr double kDay = 86400;

constexpr RuleKey kKeys[] = {
    {"warmup_s", "runs before the first sample, in seconds; at least one run", "a number of seconds",
     [](TimingRule& rule, std::string_view text) { rule.warmup_s = parse_real(text, -1e-9, kDay); }},
    {"min_samples", "samples before the interval is believed", "6 or more",
     [](TimingRule& rule, std::string_view text) { rule.min_samples = parse_count(text, 6, 1000000); }},
    {"max_samples", "the most samples of a mask", "6 or more",
     [](TimingRule& rule, std::string_view text) { rule.max_samples = parse_count(text, 6, 1000000); }},
    {"budget_s", "time for the samples of a mask, in seconds", "a number of seconds",
     [](TimingRule& rule, std::string_view text) { rule.budget_s = parse_real(text, -1e-9, kDay); }},
    {"half_width", "enough: half the 95 % interval of the median over the median", "0.02 stands for 2 %",
     [](TimingRule& rule, std::string_view text) { rule.half_width = parse_real(text, 0, 1); }},
    {"cold_cache", "begin each sample with cold caches", "true or false",
     [](TimingRule& rule, std::string_view text) { rule.cold_cache = parse_bool(text); }},
    {"timeout_s", "time for a whole case, verification and all, in seconds", "a number of seconds",
     [](TimingRule& rule, std::string_view text) { rule.timeout_s = parse_real(text, 0, 7 * kDay); }},
};

}  // namespace

std::span<const RuleKey> rule_keys() {
  return kKeys;
}

void check(const TimingRule& rule) {
  LONGSPAN_CHECK_INPUT(rule.min_samples <= rule.max_samples, "min_samples {} is above max_samples {}",
                       rule.min_samples, rule.max_samples);
}

}  // namespace longspan::bench
