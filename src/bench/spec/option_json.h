// Values of options as JSON, in cases and in records.
#pragma once

#include <nlohmann/json.hpp>

#include "base/options.h"

namespace longspan::bench {

// A number, a string, "yes" or "no", or [LEFT, RIGHT] (RIGHT is null if not given).
nlohmann::json to_json(const OptionValue& value);

// Throws an input error that names the option.
OptionValue option_from_json(const OptionSpec& option, const nlohmann::json& json);

}  // namespace longspan::bench
