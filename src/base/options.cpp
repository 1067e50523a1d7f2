#include "base/options.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/parse.h"

namespace longspan {
namespace {

void check_count(std::string_view option, int64_t value, const OptionSpec& spec) {
  LONGSPAN_CHECK_INPUT(value >= spec.least, "{} {}: must be at least {}", option, value, spec.least);
  LONGSPAN_CHECK_INPUT(value <= spec.most, "{} {}: must be at most {}", option, value, spec.most);
}

}  // namespace

std::string to_text(const OptionValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "yes" : "no";
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* ratio = std::get_if<double>(&value)) return fmt::format("{}", *ratio);
  if (const auto* count = std::get_if<int64_t>(&value)) return fmt::format("{}", *count);
  const TokenPair& pair = std::get<TokenPair>(value);
  return pair.second ? fmt::format("{},{}", pair.first, *pair.second) : fmt::format("{}", pair.first);
}

OptionValue OptionSpec::parse(std::string_view text) const {
  switch (kind) {
    case OptionKind::kCount:
      return parse_count(text, least, most);
    case OptionKind::kRatio:
      return parse_real(text, 0, 1);
    case OptionKind::kFlag: {
      const bool yes = text == "yes" || text == "true";
      LONGSPAN_CHECK_INPUT(yes || text == "no" || text == "false", "'{}': must be yes or no", text);
      return yes;
    }
    case OptionKind::kChoice:
      LONGSPAN_CHECK_INPUT(std::find(choices.begin(), choices.end(), text) != choices.end(),
                           "'{}': must be one of {}", text, fmt::join(choices, ", "));
      return std::string(text);
    case OptionKind::kTokenPair: {
      const size_t comma = text.find(',');
      TokenPair pair;
      pair.first = parse_count(trimmed(text.substr(0, comma)), least, most);
      if (comma != std::string_view::npos)
        pair.second = parse_count(trimmed(text.substr(comma + 1)), least, most);
      return pair;
    }
  }
  LONGSPAN_CHECK(false, "option {} is of no kind", name);
}

void OptionSpec::check(const OptionValue& value) const {
  const std::string option = option_name(name);
  switch (kind) {
    case OptionKind::kCount:
      return check_count(option, std::get<int64_t>(value), *this);
    case OptionKind::kRatio: {
      const double ratio = std::get<double>(value);
      LONGSPAN_CHECK_INPUT(ratio > 0 && ratio <= 1, "{} {}: must be above 0 and at most 1", option, ratio);
      return;
    }
    case OptionKind::kFlag:
      LONGSPAN_CHECK(std::holds_alternative<bool>(value), "{} is neither yes nor no", option);
      return;
    case OptionKind::kChoice:
      parse(std::get<std::string>(value));
      return;
    case OptionKind::kTokenPair: {
      const TokenPair& pair = std::get<TokenPair>(value);
      check_count(option, pair.first, *this);
      if (pair.second) check_count(option, *pair.second, *this);
      return;
    }
  }
}

std::vector<std::string> OptionSpec::words() const {
  if (kind == OptionKind::kFlag) return {"yes", "no"};
  return {choices.begin(), choices.end()};
}

std::string option_name(std::string_view key) {
  std::string option = "--" + std::string(key);
  std::replace(option.begin(), option.end(), '_', '-');
  return option;
}

OptionValues& OptionValues::set(std::string_view name, OptionValue value) {
  values_.insert_or_assign(std::string(name), std::move(value));
  return *this;
}

void OptionValues::erase(std::string_view name) {
  if (const auto it = values_.find(name); it != values_.end()) values_.erase(it);
}

const OptionValue* OptionValues::find(std::string_view name) const {
  const auto it = values_.find(name);
  return it == values_.end() ? nullptr : &it->second;
}

std::optional<OptionValue> OptionValues::value_of(const OptionSpec& option) const {
  if (const OptionValue* value = find(option.name)) return *value;
  if (option.preset.empty()) return std::nullopt;
  return option.parse(option.preset);
}

template <class T>
T OptionValues::get(const OptionSpec& option) const {
  const std::optional<OptionValue> value = value_of(option);
  LONGSPAN_CHECK(value && std::holds_alternative<T>(*value), "option {} has no such value", option.name);
  return std::get<T>(*value);
}

int64_t OptionValues::count(const OptionSpec& option) const {
  return get<int64_t>(option);
}

double OptionValues::ratio(const OptionSpec& option) const {
  return get<double>(option);
}

bool OptionValues::flag(const OptionSpec& option) const {
  return get<bool>(option);
}

TokenPair OptionValues::pair(const OptionSpec& option) const {
  return get<TokenPair>(option);
}

size_t OptionValues::choice(const OptionSpec& option) const {
  const auto it = std::find(option.choices.begin(), option.choices.end(), get<std::string>(option));
  LONGSPAN_CHECK(it != option.choices.end(), "option {} has no such choice", option.name);
  return static_cast<size_t>(it - option.choices.begin());
}

void OptionValues::keep(std::span<const OptionSpec> options) {
  std::erase_if(values_, [&](const auto& entry) { return find_option(options, entry.first) == nullptr; });
}

const OptionSpec* find_option(std::span<const OptionSpec> options, std::string_view name) {
  for (const OptionSpec& option : options) {
    if (option.name == name) return &option;
  }
  return nullptr;
}

std::string TableOption::help() const {
  const std::string_view preset = readers.front().spec.preset;
  const bool one_preset = std::all_of(readers.begin(), readers.end(),
                                      [&](const Reader& reader) { return reader.spec.preset == preset; });
  std::vector<std::string> rows;
  for (const Reader& reader : readers) {
    const bool own = !one_preset && !reader.spec.preset.empty();
    rows.push_back(own ? fmt::format("{} [{}]", reader.row, reader.spec.preset) : reader.row);
  }
  std::string text(spec.help);
  if (!read_by_all || !one_preset) text += fmt::format(" ({})", fmt::join(rows, ", "));
  if (one_preset && !preset.empty()) text += fmt::format(" [{}]", preset);
  return text;
}

std::string TableOption::rows() const {
  std::string text;
  for (size_t i = 0; i < readers.size(); ++i) {
    if (i > 0) text += i + 1 == readers.size() ? " and " : ", ";
    text += readers[i].row;
  }
  return text;
}

void TableOptions::add_row(std::string_view row, std::span<const OptionSpec> options) {
  ++rows_;
  auto next = options_.begin();  // where an option goes that no row had before
  for (const OptionSpec& option : options) {
    auto at = std::find_if(options_.begin(), options_.end(),
                           [&](const TableOption& known) { return known.spec.name == option.name; });
    if (at == options_.end()) at = options_.insert(next, {option, {}, false});
    LONGSPAN_CHECK(at->spec.kind == option.kind, "option {} of {} is of another kind in {}", option.name, row,
                   at->readers.front().row);
    at->readers.push_back({std::string(row), option});
    next = at + 1;
  }
}

std::vector<TableOption> TableOptions::take() {
  for (TableOption& option : options_) option.read_by_all = option.readers.size() == rows_;
  return std::move(options_);
}

const TableOption* find_option(std::span<const TableOption> options, std::string_view name) {
  for (const TableOption& option : options) {
    if (option.spec.name == name) return &option;
  }
  return nullptr;
}

}  // namespace longspan
