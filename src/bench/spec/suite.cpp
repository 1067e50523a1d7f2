// Reads suites from TOML and expands them to cases.
#include "bench/spec/suite.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>

#include <toml++/toml.h>

#include "base/error.h"
#include "base/input_file.h"
#include "base/nearest.h"
#include "base/printable.h"
#include "bench/spec/values.h"
#include "longspan/parallel.h"

namespace longspan::bench {
namespace {

constexpr size_t kMaxCases = 100000;

// The place behind the string that begins at `at`, whether or not it ends.
size_t end_of_string(std::string_view text, size_t at) {
  const char quote = text[at];
  const std::string triple(3, quote);
  const bool several_lines = text.substr(at).starts_with(triple);
  const std::string end = several_lines ? triple : std::string(1, quote);
  for (at += end.size(); at < text.size(); ++at) {
    if (text[at] == '\\' && quote == '"') {
      ++at;
    } else if (text.substr(at).starts_with(end) || (text[at] == '\n' && !several_lines)) {
      return at + end.size();
    }
  }
  return text.size();
}

// The parser limits how deep lists and inline tables nest, but not the parts of a key such as a.b.c, each of
// which is a table in a table. Millions would overflow the stack.
void check_keys(std::string_view text, std::string_view file) {
  constexpr int kMostDots = 16;
  int dots = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"' || c == '\'') {
      at = end_of_string(text, at) - 1;
    } else if (c == '#') {
      at = std::min(text.find('\n', at), text.size()) - 1;
    } else if (c == '.') {
      LONGSPAN_CHECK_INPUT(
          ++dots <= kMostDots, "{}:{}: a key of more than {} parts; no key of a suite has any", file,
          1 + std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n'), kMostDots);
    } else if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_' && c != '-' && c != ' ' &&
               c != '\t') {
      dots = 0;
    }
  }
}

// Reads one suite. Messages name the file.
class SuiteReader {
 public:
  explicit SuiteReader(std::string_view file) : file_(file) {}

  Suite read(std::string_view text) {
    check_keys(text, file_);
    const toml::table root = parse(text);
    Suite suite;
    suite.name = std::filesystem::path(file_).stem().string();
    const std::vector<std::string> known{"name", "description", "rule", "defaults", "case"};
    for (const auto& [key, node] : root) check_key(key, known, "a suite");
    if (const auto* node = root.get("name")) suite.name = string_of(*node, "name");
    if (const auto* node = root.get("description")) suite.description = string_of(*node, "description");
    if (const auto* node = root.get("rule")) suite.rule = rule_of(table_of(*node, "rule"));
    Group defaults;
    if (const auto* node = root.get("defaults"))
      defaults = group_of(table_of(*node, "defaults"), "[defaults]", {});

    const toml::node* cases = root.get("case");
    LONGSPAN_CHECK_INPUT(cases != nullptr, "{}: a suite needs at least one [[case]] table", file_);
    const toml::array* list = cases->as_array();
    LONGSPAN_CHECK_INPUT(list != nullptr && !list->empty(),
                         "{}: 'case' must be a list of tables, written [[case]]", where(*cases));
    for (const toml::node& node : *list) {
      const toml::table& table = table_of(node, "case");
      suite.groups.push_back(group_of(table, "[[case]]", defaults));
      const Axis* missing = missing_axis(suite.groups.back());
      LONGSPAN_CHECK_INPUT(missing == nullptr, "{}: this [[case]] lacks '{}' ({})", where(node),
                           missing->name, missing->help);
    }
    return suite;
  }

 private:
  toml::table parse(std::string_view text) const {
    try {
      return toml::parse(text, file_);
    } catch (const toml::parse_error& error) {
      LONGSPAN_CHECK_INPUT(false, "{}:{}:{}: {}", file_, error.source().begin.line,
                           error.source().begin.column, error.description());
    } catch (const std::exception& error) {
      LONGSPAN_CHECK_INPUT(false, "{}: cannot be read: {}", file_, error.what());
    }
    return {};
  }

  std::string where(const toml::node& node) const {
    return fmt::format("{}:{}", file_, node.source().begin.line);
  }

  void check_key(const toml::key& key, const std::vector<std::string>& known, std::string_view place) const {
    for (const std::string& name : known) {
      if (name == key.str()) return;
    }
    LONGSPAN_CHECK_INPUT(false, "{}:{}: {} has no key '{}'{}; its keys are {}", file_,
                         key.source().begin.line, place, key.str(), did_you_mean(key.str(), known),
                         fmt::join(known, ", "));
  }

  const toml::table& table_of(const toml::node& node, std::string_view key) const {
    const toml::table* table = node.as_table();
    LONGSPAN_CHECK_INPUT(table != nullptr, "{}: '{}' must be a table", where(node), key);
    return *table;
  }

  std::string string_of(const toml::node& node, std::string_view key) const {
    const auto* value = node.as_string();
    LONGSPAN_CHECK_INPUT(value != nullptr, "{}: '{}' must be a string in quotes", where(node), key);
    return value->get();
  }

  // Numbers, booleans and strings all become the text that the command line would have.
  std::string scalar_of(const toml::node& node, std::string_view key) const {
    if (const auto* value = node.as_string()) return value->get();
    if (const auto* value = node.as_integer()) return fmt::format("{}", value->get());
    if (const auto* value = node.as_floating_point()) return fmt::format("{}", value->get());
    if (const auto* value = node.as_boolean()) return value->get() ? "true" : "false";
    LONGSPAN_CHECK_INPUT(false, "{}: '{}' must be a number, a string, or a list of these", where(node), key);
    return "";
  }

  TimingRule rule_of(const toml::table& table) const {
    TimingRule rule;
    std::vector<std::string> known;
    for (const RuleKey& key : rule_keys()) known.emplace_back(key.name);
    for (const auto& [key, node] : table) {
      check_key(key, known, "[rule]");
      for (const RuleKey& row : rule_keys()) {
        if (row.name != key.str()) continue;
        try {
          row.set(rule, scalar_of(node, key.str()));
        } catch (const Error& error) {
          rethrow_at(error, where(node), row.name);
        }
      }
    }
    try {
      check(rule);
    } catch (const Error& error) {
      LONGSPAN_CHECK_INPUT(false, "{}: {}", where(table), error.what());
    }
    return rule;
  }

  [[noreturn]] static void rethrow_at(const Error& error, const std::string& where, std::string_view key) {
    const std::string message = error.what();
    // A message of scalar_of already has the location.
    throw Error(error.kind(),
                message.starts_with(where) ? message : fmt::format("{}: {} {}", where, key, message),
                error.file(), error.line(), error.expression());
  }

  Group group_of(const toml::table& table, std::string_view place, Group group) const {
    std::vector<std::string> known;
    for (const Axis& axis : axes()) known.emplace_back(axis.name);
    for (const auto& [key, node] : table) {
      check_key(key, known, place);
      const Axis& axis = *find_axis(key.str());
      group.values.erase(std::string(axis.name));
      if (const toml::array* list = node.as_array()) {
        LONGSPAN_CHECK_INPUT(!list->empty(), "{}: '{}' is an empty list", where(node), key.str());
        for (const toml::node& item : *list)
          add_value(group, axis, {scalar_of(item, key.str()), where(item)});
      } else {
        add_value(group, axis, {scalar_of(node, key.str()), where(node)});
      }
    }
    return group;
  }

  std::string file_;
};

// The beginning of a message about a value: "suite.toml:3: seqlen" or "--seqlen".
std::string place_of(const Given& value, std::string_view axis) {
  return value.where.starts_with("--") ? value.where : fmt::format("{}: {}", value.where, axis);
}

// Expands the name of a group of masks to its members.
std::vector<std::string> mask_names(std::string_view text) {
  if (text != "all" && text != "dense" && text != "block-sparse") return {std::string(text)};
  std::vector<std::string> names;
  for (const Pattern& pattern : patterns()) {
    if (text == "all" || pattern.block_sparse == (text == "block-sparse")) names.emplace_back(pattern.name);
  }
  return names;
}

// The cases of one group, indexed by a mixed-radix counter of its values, the first axis slowest.
class GroupExpansion {
 public:
  GroupExpansion(const Group& group, const std::vector<std::string>& offered) {
    for (const Axis& axis : axes()) {
      const auto it = group.values.find(axis.name);
      std::vector<Given> given;
      if (it != group.values.end()) {
        given = it->second;
      } else if (!axis.preset.empty()) {
        given = {{std::string(axis.preset), std::string(axis.name)}};
      } else {
        continue;
      }
      if (axis.name == "kernel") given = kernels_of(given, offered);
      columns_.push_back({&axis, std::move(given)});
    }
  }

  size_t size() const {
    size_t size = 1;
    for (const Column& column : columns_) {
      size *= column.values.size();
      if (size > kMaxCases) return size;
    }
    return size;
  }

  Case at(size_t index) const {
    Case c;
    for (size_t i = columns_.size(); i-- > 0;) {
      const Column& column = columns_[i];
      const Given& value = column.values[index % column.values.size()];
      index /= column.values.size();
      column.axis->set(c, value.text);
    }
    return c;
  }

 private:
  struct Column {
    const Axis* axis;
    std::vector<Given> values;
  };

  static std::vector<Given> kernels_of(const std::vector<Given>& given,
                                       const std::vector<std::string>& offered) {
    std::vector<Given> kernels;
    for (const Given& value : given) {
      if (value.text != "all") {
        kernels.push_back(value);
        continue;
      }
      for (const std::string& name : offered) kernels.push_back({name, value.where});
    }
    return kernels;
  }

  std::vector<Column> columns_;
};

void check_kernel_names(const Group& group, const std::vector<std::string>& all_kernels,
                        std::span<const KernelRow> rows) {
  const auto it = group.values.find("kernel");
  if (it == group.values.end()) return;
  for (const Given& value : it->second) {
    if (value.text == "all") continue;
    bool known = false;
    for (const std::string& name : all_kernels) known = known || name == value.text;
    const std::string lacking = lacking_message(value.text, rows);
    // A suite is for many machines: the run skips what this one lacks. A name that is typed is wanted.
    if (!lacking.empty() && !value.where.starts_with("--")) continue;
    LONGSPAN_CHECK_INPUT(known || lacking.empty(), "{}: {}", place_of(value, "kernel"), lacking);
    LONGSPAN_CHECK_INPUT(known, "{} '{}' is unknown{}; the kernels of this build are {} (or 'all')",
                         place_of(value, "kernel"), value.text, did_you_mean(value.text, all_kernels),
                         fmt::join(all_kernels, ", "));
  }
}

}  // namespace

Suite parse_suite(std::string_view text, std::string_view name) {
  try {
    return SuiteReader(name).read(text);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;
    // Quoted keys and values may contain line breaks and escape sequences of terminals.
    throw Error(error.kind(), printable(error.what()), error.file(), error.line(), error.expression());
  }
}

Suite read_suite(const std::string& path) {
  Suite suite = parse_suite(read_input_file(path, kSuiteFile), path);
  // Paths of mask files and lengths files are relative to the suite.
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  for (Group& group : suite.groups) {
    for (auto& [axis, values] : group.values) {
      for (Given& value : values) {
        const bool names_file = axis == "mask" ? Case::is_mask_file(value.text)
                                               : axis == "lengths" && value.text.ends_with(".csv");
        if (names_file) value.text = (folder / value.text).lexically_normal().string();
      }
    }
  }
  return suite;
}

void add_value(Group& group, const Axis& axis, const Given& value) {
  auto& values = group.values[std::string(axis.name)];
  std::vector<std::string> names{value.text};
  if (axis.name == "mask") names = mask_names(value.text);
  if (axis.name == "strategy" && value.text == "all") names = strategy_names();
  for (const std::string& name : names) {
    try {
      Case scratch;
      axis.set(scratch, name);
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("{} {}", place_of(value, axis.name), error.what()), error.file(),
                  error.line(), error.expression());
    }
    values.push_back({name, value.where});
  }
}

void check_options_read(const Group& group) {
  // Whether a value of the axis has a row that reads the option, and the values for a message.
  const auto check = [&](std::string_view axis, std::string_view option, const std::string& readers,
                         auto&& reads) {
    const auto given = group.values.find(option);
    const auto rows = group.values.find(axis);
    if (given == group.values.end() || rows == group.values.end()) return;
    const bool read = std::any_of(rows->second.begin(), rows->second.end(), reads);
    std::vector<std::string_view> names;
    for (const Given& row : rows->second) names.push_back(row.text);
    LONGSPAN_CHECK_INPUT(read, "{} does not apply to {}, only to {}", place_of(given->second.front(), option),
                         fmt::join(names, ", "), readers);
  };
  check("mask", "lengths", "masks of documents", [](const Given& mask) {
    return !Case::is_mask_file(mask.text) && pattern_from_name(mask.text).documents;
  });
  for (const TableOption& option : pattern_options()) {
    check("mask", option.spec.name, option.rows(), [&](const Given& mask) {
      return !Case::is_mask_file(mask.text) &&
             find_option(pattern_from_name(mask.text).options, option.spec.name) != nullptr;
    });
  }
  for (const TableOption& option : strategy_options()) {
    check("strategy", option.spec.name, option.rows(), [&](const Given& strategy) {
      return find_option(strategy_from_name(strategy.text).options, option.spec.name) != nullptr;
    });
  }
}

const Axis* missing_axis(const Group& group) {
  bool only_files = false;
  if (const auto masks = group.values.find("mask"); masks != group.values.end()) {
    only_files = std::all_of(masks->second.begin(), masks->second.end(),
                             [](const Given& value) { return Case::is_mask_file(value.text); });
  }
  for (const Axis& axis : axes()) {
    if (!axis.required || (axis.name == "seqlen" && only_files)) continue;
    if (group.values.find(axis.name) == group.values.end()) return &axis;
  }
  return nullptr;
}

std::vector<Case> expand(const Suite& suite, const std::vector<std::string>& all_kernels,
                         const std::vector<std::string>& offered, std::span<const KernelRow> rows) {
  std::vector<Case> cases;
  std::set<std::string> seen;
  for (const Group& group : suite.groups) {
    check_kernel_names(group, all_kernels, rows);
    const GroupExpansion expansion(group, offered);
    LONGSPAN_CHECK_INPUT(cases.size() + expansion.size() <= kMaxCases,
                         "suite '{}' makes more than {} cases; split it", suite.name, kMaxCases);
    for (size_t i = 0; i < expansion.size(); ++i) {
      Case c = normalised(expansion.at(i));
      if (seen.insert(id_of(c)).second) cases.push_back(std::move(c));
    }
  }
  return cases;
}

Suite find_suite(const std::string& name_or_path) {
  if (name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".toml"))
    return read_suite(name_or_path);
  std::vector<std::string> names;
  for (const BuiltinSuite& suite : builtin_suites()) {
    if (suite.name == name_or_path) return parse_suite(suite.text, fmt::format("{}.toml", suite.name));
    names.emplace_back(suite.name);
  }
  LONGSPAN_CHECK_INPUT(false, "suite '{}' is unknown{}; the suites are {}, or name a file (./{}.toml)",
                       name_or_path, did_you_mean(name_or_path, names), fmt::join(names, ", "), name_or_path);
  return {};
}

}  // namespace longspan::bench
