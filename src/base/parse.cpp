#include "base/parse.h"

#include <charconv>
#include <limits>
#include <utility>

#include "base/error.h"

namespace longspan {
namespace {

struct Unit {
  char letter;
  int shift;
};
constexpr Unit kUnits[] = {{'G', 30}, {'M', 20}, {'K', 10}};

// "8K" as "8" and 10.
std::pair<std::string_view, int> without_unit(std::string_view text) {
  for (const Unit& unit : kUnits) {
    if (text.empty() || (text.back() | 0x20) != (unit.letter | 0x20)) continue;
    return {text.substr(0, text.size() - 1), unit.shift};
  }
  return {text, 0};
}

}  // namespace

int64_t parse_length(std::string_view text, std::string_view what) {
  const auto [digits, shift] = without_unit(text);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  LONGSPAN_CHECK_INPUT(
      error != std::errc::result_out_of_range && number <= std::numeric_limits<int64_t>::max() >> shift,
      "{} {}: is too large", what, text);
  LONGSPAN_CHECK_INPUT(error == std::errc() && end == digits.data() + digits.size() && number >= 0,
                       "{} '{}': must be a whole number of tokens, such as 1000, 8K or 1M", what, text);
  return number << shift;
}

std::string format_length(int64_t tokens) {
  for (const Unit& unit : kUnits)
    if (tokens > 0 && tokens % (int64_t{1} << unit.shift) == 0)
      return fmt::format("{}{}", tokens >> unit.shift, unit.letter);
  return fmt::format("{}", tokens);
}

int64_t parse_count(std::string_view text, int64_t min, int64_t max) {
  const auto [digits, shift] = without_unit(text);
  const int64_t unit = int64_t{1} << shift;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool fits = error == std::errc() && end == digits.data() + digits.size() && number <= max / unit &&
                    number >= min / unit && number * unit >= min;
  LONGSPAN_CHECK_INPUT(fits, "'{}': must be a whole number from {} to {}; 8K and 1M may be written", text,
                       format_length(min), format_length(max));
  return number * unit;
}

double parse_real(std::string_view text, double above, double max) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool fits =
      error == std::errc() && end == text.data() + text.size() && number > above && number <= max;
  LONGSPAN_CHECK_INPUT(fits, "'{}': must be a number above {} and at most {}", text, above, max);
  return number;
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

}  // namespace longspan
