// A few values of an option, by its kind. Sweeps over patterns and strategies set options with them, whatever
// the options are called.
#pragma once

#include <span>
#include <vector>

#include "base/options.h"

namespace longspan {

// `counts`: the numbers to try; those that the option does not allow are left out.
inline std::vector<OptionValue> samples_of(const OptionSpec& option, std::span<const int64_t> counts) {
  std::vector<OptionValue> samples;
  const auto allowed = [&](int64_t count) { return option.least <= count && count <= option.most; };
  switch (option.kind) {
    case OptionKind::kCount:
      for (const int64_t count : counts) {
        if (allowed(count)) samples.emplace_back(count);
      }
      break;
    case OptionKind::kTokenPair:
      for (const int64_t count : counts) {
        if (!allowed(count) || !allowed(2 * count)) continue;
        samples.emplace_back(TokenPair{count, {}});
        samples.emplace_back(TokenPair{count, 2 * count});
      }
      break;
    case OptionKind::kRatio:
      samples = {0.25, 1.0};
      break;
    case OptionKind::kFlag:
      samples = {true, false};
      break;
    case OptionKind::kChoice:
      for (const std::string_view choice : option.choices) samples.emplace_back(std::string(choice));
      break;
  }
  return samples;
}

}  // namespace longspan
