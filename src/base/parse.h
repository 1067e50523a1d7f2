// Numbers as users write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace longspan {

// A number of tokens: digits, and K, M or G for 1024, 1024^2 or 1024^3, in either case: 8192, 8K, 1M. Throws
// an input error that begins with `what`, the option or key that the text belongs to.
int64_t parse_length(std::string_view text, std::string_view what);

// The shortest form that parse_length reads back: "8K", "1M", "1000".
std::string format_length(int64_t tokens);

}  // namespace longspan
