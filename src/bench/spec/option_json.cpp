// Converts option values to and from JSON.
#include "bench/spec/option_json.h"

#include "base/error.h"

namespace longspan::bench {
namespace {

bool is_count(const nlohmann::json& json) {
  return json.is_number_integer() && (!json.is_number_unsigned() || json.get<uint64_t>() <= INT64_MAX);
}

// nullopt if the JSON does not have the option's type.
std::optional<OptionValue> read(const OptionSpec& option, const nlohmann::json& json) {
  switch (option.kind) {
    case OptionKind::kCount:
      if (is_count(json)) return json.get<int64_t>();
      return std::nullopt;
    case OptionKind::kRatio:
      if (json.is_number()) return json.get<double>();
      return std::nullopt;
    case OptionKind::kFlag:
    case OptionKind::kChoice:
      if (json.is_string()) return option.parse(json.get<std::string>());
      return std::nullopt;
    case OptionKind::kTokenPair: {
      if (!json.is_array() || json.size() != 2 || !is_count(json[0])) return std::nullopt;
      TokenPair pair{json[0].get<int64_t>(), std::nullopt};
      if (json[1].is_null()) return pair;
      if (!is_count(json[1])) return std::nullopt;
      pair.second = json[1].get<int64_t>();
      return pair;
    }
  }
  return std::nullopt;
}

}  // namespace

nlohmann::json to_json(const OptionValue& value) {
  if (const auto* count = std::get_if<int64_t>(&value)) return *count;
  if (const auto* ratio = std::get_if<double>(&value)) return *ratio;
  if (const auto* pair = std::get_if<TokenPair>(&value))
    return {pair->first, pair->second ? nlohmann::json(*pair->second) : nlohmann::json()};
  return to_text(value);
}

OptionValue option_from_json(const OptionSpec& option, const nlohmann::json& json) {
  const std::optional<OptionValue> value = read(option, json);
  LONGSPAN_CHECK_INPUT(value.has_value(), "option '{}' has a value of the wrong type", option.name);
  option.check(*value);
  return *value;
}

}  // namespace longspan::bench
