// Options that a mask pattern or a strategy declares beside itself. The command line, suites, filters, the
// JSON of cases, help and completion all read these declarations, so that an option is named in one place.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace longspan {

// Two numbers of tokens, "LEFT,RIGHT". The second may be left out.
struct TokenPair {
  int64_t first = 0;
  std::optional<int64_t> second;
  friend bool operator==(const TokenPair&, const TokenPair&) = default;
};

using OptionValue = std::variant<int64_t, double, bool, std::string, TokenPair>;

// The text that OptionSpec::parse reads as this value: "8192", "0.5", "yes", "zigzag", "1024,0".
std::string to_text(const OptionValue& value);

enum class OptionKind : uint8_t {
  kCount,      // int64_t, from `least` to `most`; 8K and 1M may be written
  kRatio,      // double, above 0 and at most 1
  kFlag,       // bool: yes or no
  kChoice,     // std::string, one of `choices`
  kTokenPair,  // TokenPair, both numbers from `least` to `most`
};

struct OptionSpec {
  std::string_view
      name;  // "block_min": the key in suites, filters and cases; --block-min on the command line
  std::string_view help;
  OptionKind kind = OptionKind::kCount;
  int64_t least = 0, most = int64_t{1} << 32;
  std::span<const std::string_view> choices = {};
  std::string_view preset = {};  // holds where no value is given; empty: the row draws or computes one
  // A strategy's case names the value even where the user gave none: resolve() fills it in.
  bool always_in_case = false;

  // Throws an input error that begins with the text and says what is allowed.
  OptionValue parse(std::string_view text) const;
  // Throws an input error that names the option if the value is not allowed.
  void check(const OptionValue& value) const;
  std::vector<std::string> words() const;  // all values, where they are few
  bool numeric() const { return kind == OptionKind::kCount || kind == OptionKind::kRatio; }

  constexpr OptionSpec with_preset(std::string_view text) const {
    OptionSpec spec = *this;
    spec.preset = text;
    return spec;
  }
};

// "--block-min" for "block_min".
std::string option_name(std::string_view key);

// The values that were given, by name. A getter falls back to the preset of the option's declaration.
class OptionValues {
 public:
  OptionValues& set(std::string_view name, OptionValue value);
  void erase(std::string_view name);
  bool has(const OptionSpec& option) const { return find(option.name) != nullptr; }
  const OptionValue* find(std::string_view name) const;  // nullptr: not given
  bool empty() const { return values_.empty(); }

  // Each throws an internal error if neither a value nor a preset exists, or if it is of another kind.
  int64_t count(const OptionSpec& option) const;
  double ratio(const OptionSpec& option) const;
  bool flag(const OptionSpec& option) const;
  TokenPair pair(const OptionSpec& option) const;
  size_t choice(const OptionSpec& option) const;  // its number among the choices
  template <class Enum>
  Enum choice(const OptionSpec& option) const {
    return static_cast<Enum>(choice(option));
  }
  int64_t count_or(const OptionSpec& option, int64_t value) const {
    return has(option) ? count(option) : value;
  }

  // What the option holds, given or preset; nothing where it is neither.
  std::optional<OptionValue> value_of(const OptionSpec& option) const;
  // Drops what none of the options reads.
  void keep(std::span<const OptionSpec> options);

  friend bool operator==(const OptionValues&, const OptionValues&) = default;

 private:
  template <class T>
  T get(const OptionSpec& option) const;

  std::map<std::string, OptionValue, std::less<>> values_;
};

const OptionSpec* find_option(std::span<const OptionSpec> options, std::string_view name);

// An option of a table, and the rows that read it.
struct TableOption {
  struct Reader {
    std::string row;
    OptionSpec spec;  // with the row's own preset
  };
  OptionSpec spec;  // the first reader's
  std::vector<Reader> readers;
  bool read_by_all = false;

  std::string help() const;  // "block size (uniform_block_sparse [64], variable_block_sparse [256])"
  std::string rows() const;  // "usp and loongtrain"
};

// The options of all rows of a table, each once. An option stands behind the one that it follows in its row.
class TableOptions {
 public:
  void add_row(std::string_view row, std::span<const OptionSpec> options);
  std::vector<TableOption> take();

 private:
  std::vector<TableOption> options_;
  size_t rows_ = 0;
};

const TableOption* find_option(std::span<const TableOption> options, std::string_view name);

}  // namespace longspan
