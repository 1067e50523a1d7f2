// Numbers in the forms that users write.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace longspan {

// Parses a number of tokens: digits with an optional K, M or G (1024, 1024^2, 1024^3) in either case: 8192,
// 8K, 1M. Throws an input error that begins with `what`, the option or key of the text.
int64_t parse_length(std::string_view text, std::string_view what);

// The shortest text that parse_length reads back: "8K", "1M", "1000".
std::string format_length(int64_t tokens);

// The same for a number of a given range. This message and the next begin with the text; the caller adds the
// option or key before it.
int64_t parse_count(std::string_view text, int64_t min, int64_t max);
double parse_real(std::string_view text, double above, double max);  // above < x <= max

std::string_view trimmed(std::string_view text);

}  // namespace longspan
