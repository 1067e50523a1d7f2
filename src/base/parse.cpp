#include "base/parse.h"

#include <charconv>
#include <limits>

#include "base/error.h"

namespace longspan {
namespace {

struct Unit {
  char letter;
  int shift;
};
constexpr Unit kUnits[] = {{'G', 30}, {'M', 20}, {'K', 10}};

}  // namespace

int64_t parse_length(std::string_view text, std::string_view what) {
  std::string_view digits = text;
  int shift = 0;
  for (const Unit& unit : kUnits) {
    if (digits.empty() || (digits.back() | 0x20) != (unit.letter | 0x20)) continue;
    shift = unit.shift;
    digits.remove_suffix(1);
    break;
  }
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

}  // namespace longspan
