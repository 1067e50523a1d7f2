// The table of the keys of the timing rule.
#include "bench/spec/timing_rule.h"

#include "base/error.h"
#include "bench/spec/values.h"

namespace longspan::bench {
namespace {

constexpr double kDay = 86400;

constexpr RuleKey kKeys[] = {
    {"warmup_s", "warm-up time before the first sample; at least one run", "a number of seconds",
     [](TimingRule& rule, std::string_view text) { rule.warmup_s = parse_real(text, -1e-9, kDay); }},
    {"min_samples", "samples that must be taken before sampling may stop early", "6 or more",
     [](TimingRule& rule, std::string_view text) { rule.min_samples = parse_count(text, 6, 1000000); }},
    {"max_samples", "maximum number of samples per mask", "6 or more",
     [](TimingRule& rule, std::string_view text) { rule.max_samples = parse_count(text, 6, 1000000); }},
    {"min_time_s", "time of sampling, per mask, before it may stop early", "a number of seconds",
     [](TimingRule& rule, std::string_view text) { rule.min_time_s = parse_real(text, -1e-9, kDay); }},
    {"budget_s", "time limit for sampling, per mask", "a number of seconds",
     [](TimingRule& rule, std::string_view text) { rule.budget_s = parse_real(text, -1e-9, kDay); }},
    {"half_width",
     "stop sampling when half the 95 % interval of the median, over the median, is at most this",
     "0.02 means 2 %",
     [](TimingRule& rule, std::string_view text) { rule.half_width = parse_real(text, 0, 1); }},
    {"cold_cache", "start each sample with cold caches", "true or false",
     [](TimingRule& rule, std::string_view text) { rule.cold_cache = parse_bool(text); }},
    {"timeout_s", "time limit for a whole case, including verification", "a number of seconds",
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
