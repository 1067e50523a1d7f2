// Options that a caller gives as text, for patterns and strategies alike.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/options.h"

namespace longspan {

// Sets the option `name` of those that `reader` ("usp") declares. Throws an input error that names the option
// and says what is allowed; `others` are names that the reader takes besides ("seed, index").
void set_from_text(OptionValues& values, std::span<const OptionSpec> declared, std::string_view reader,
                   std::string_view others, const std::string& name, const std::string& text);

}  // namespace longspan
