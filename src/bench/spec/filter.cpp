// Parses filter expressions and evaluates them on cases.
#include "bench/spec/filter.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "base/error.h"
#include "base/nearest.h"
#include "bench/spec/values.h"

namespace longspan::bench {
namespace {

std::vector<std::string> fields() {
  std::vector<std::string> names;
  for (const Axis& axis : axes()) names.emplace_back(axis.name);
  names.insert(names.end(), {"heads_q", "heads_kv"});
  return names;
}

bool is_numeric(std::string_view field) {
  if (field == "heads_q" || field == "heads_kv") return true;
  return find_axis(field)->numeric;
}

std::string value_of(const Case& c, std::string_view field) {
  if (field == "heads_q") return fmt::format("{}", c.heads_q);
  if (field == "heads_kv") return fmt::format("{}", c.heads_kv);
  const Axis& axis = *find_axis(field);
  const std::string value = axis.get(c);
  return axis.flag && value.empty() ? "false" : value;  // both values can be selected
}

double number_of(std::string_view text) {
  const bool suffixed = text.find_first_of("KkMm") != std::string_view::npos;
  if (suffixed) return static_cast<double>(parse_count(text, 0, int64_t{1} << 53));
  return parse_real(text, -std::numeric_limits<double>::max(), std::numeric_limits<double>::max());
}

// * matches any sequence of characters.
bool matches_pattern(std::string_view text, std::string_view pattern) {
  size_t t = 0, p = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

// Converts a value to the form of the field's own values: 8K becomes 8192, fwd becomes forward.
std::string canonical(std::string_view field, const std::string& text) {
  if (text.find('*') != std::string::npos) return text;
  if (is_numeric(field)) {
    const double number = number_of(text);
    return std::floor(number) == number ? fmt::format("{:.0f}", number) : fmt::format("{}", number);
  }
  if (field == "kernel" || field == "lengths") return text;
  Case c;
  find_axis(field)->set(c, text);
  const std::string value = value_of(c, field);
  return value.empty() ? text : value;  // some axes have no value without a strategy
}

}  // namespace

Filter::Filter(std::string_view expression) {
  const auto fail = [&](size_t at, const std::string& message) {
    LONGSPAN_CHECK_INPUT(false, "--filter '{}', at character {}: {}", expression, at + 1, message);
  };
  constexpr std::string_view kFieldLetters = "abcdefghijklmnopqrstuvwxyz_";
  size_t at = 0;
  while ((at = expression.find_first_not_of(" \t", at)) != std::string_view::npos) {
    Term term;
    const size_t field_end = std::min(expression.find_first_not_of(kFieldLetters, at), expression.size());
    term.field = expression.substr(at, field_end - at);
    bool known = false;
    for (const std::string& name : fields()) known = known || name == term.field;
    if (!known) {
      const size_t word_end = std::min(expression.find_first_of(" \t=<>!", at + 1), expression.size());
      const std::string word(expression.substr(at, std::max(word_end, field_end) - at));
      fail(at, fmt::format("'{}' is not a field{}; the fields are {}", word, did_you_mean(word, fields()),
                           fmt::join(fields(), ", ")));
    }

    const size_t operator_end = std::min(expression.find_first_not_of("=<>!", field_end), expression.size());
    const std::string_view symbol = expression.substr(field_end, operator_end - field_end);
    if (symbol == "=" || symbol == "==") {
      term.op = Operator::kIn;
    } else if (symbol == "!=") {
      term.op = Operator::kNotIn;
    } else if (symbol == "<") {
      term.op = Operator::kLess;
    } else if (symbol == "<=") {
      term.op = Operator::kLessEqual;
    } else if (symbol == ">") {
      term.op = Operator::kGreater;
    } else if (symbol == ">=") {
      term.op = Operator::kGreaterEqual;
    } else {
      fail(field_end,
           fmt::format("'{}' must be followed by one of = != < <= > >= and a value, without spaces",
                       term.field));
    }

    const size_t value_end = std::min(expression.find_first_of(" \t", operator_end), expression.size());
    const std::string_view text = expression.substr(operator_end, value_end - operator_end);
    if (text.empty()) fail(operator_end, fmt::format("a value is missing after '{}{}'", term.field, symbol));
    try {
      if (term.op != Operator::kIn && term.op != Operator::kNotIn) {
        if (!is_numeric(term.field))
          fail(field_end, fmt::format("'{}' is not numeric; use = or !=", term.field));
        term.bound = number_of(text);
      } else if (const Axis* axis = find_axis(term.field); axis != nullptr && axis->comma_in_value) {
        term.values = {canonical(term.field, std::string(text))};
      } else {
        for (const std::string& value : split(text, ',')) term.values.push_back(canonical(term.field, value));
      }
    } catch (const Error& error) {
      if (std::string_view(error.what()).starts_with("--filter")) throw;
      fail(operator_end, fmt::format("{} {}", term.field, error.what()));
    }
    terms_.push_back(std::move(term));
    at = value_end;
  }
}

bool Filter::matches(const Case& c) const {
  for (const Term& term : terms_) {
    const std::string value = value_of(c, term.field);
    if (value.empty()) {
      if (term.op != Operator::kNotIn) return false;
      continue;
    }
    bool listed = false;
    for (const std::string& pattern : term.values) listed = listed || matches_pattern(value, pattern);
    double number = 0;
    if (is_numeric(term.field)) std::from_chars(value.data(), value.data() + value.size(), number);
    bool holds = false;
    switch (term.op) {
      case Operator::kIn:
        holds = listed;
        break;
      case Operator::kNotIn:
        holds = !listed;
        break;
      case Operator::kLess:
        holds = number < term.bound;
        break;
      case Operator::kLessEqual:
        holds = number <= term.bound;
        break;
      case Operator::kGreater:
        holds = number > term.bound;
        break;
      case Operator::kGreaterEqual:
        holds = number >= term.bound;
        break;
    }
    if (!holds) return false;
  }
  return true;
}

std::string_view Filter::help() {
  return "Terms are separated by spaces, and a case must match all of them. A term is FIELD=A,B (any of\n"
         "these), FIELD!=A,B (none of these), both with * as a wildcard, or FIELD<N, <=, >, >= on numbers.\n"
         "A field is one of the axes above (seqlen, head_dim, ...), heads_q or heads_kv.";
}

}  // namespace longspan::bench
