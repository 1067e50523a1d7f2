// Reads what a paper expects from TOML.
#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include <toml++/toml.h>

#include "base/error.h"
#include "base/nearest.h"
#include "report/experiment.h"
#include "report/page_assets.h"

namespace longspan::report {
namespace {

// Reads one file. Messages name it and the line.
class ExperimentReader {
 public:
  explicit ExperimentReader(std::string_view file) : file_(file) {}

  Experiment read(std::string_view text) const {
    const toml::table root = parse(text);
    check_keys(root, {"title", "paper", "claim"}, "an experiment");
    Experiment experiment;
    experiment.title = required_string(root, "title");
    experiment.paper = required_string(root, "paper");
    const toml::array* claims = root["claim"].as_array();
    LONGSPAN_CHECK_INPUT(claims != nullptr && !claims->empty(), "{}: an experiment needs a [[claim]]", file_);
    for (const toml::node& node : *claims) {
      LONGSPAN_CHECK_INPUT(node.is_table(), "{}: 'claim' must be a list of tables, written [[claim]]",
                           where(node));
      experiment.claims.push_back(claim_of(*node.as_table()));
    }
    return experiment;
  }

 private:
  toml::table parse(std::string_view text) const {
    try {
      return toml::parse(text, file_);
    } catch (const toml::parse_error& error) {
      LONGSPAN_CHECK_INPUT(false, "{}:{}: {}", file_, error.source().begin.line, error.description());
    }
    return {};
  }

  std::string where(const toml::node& node) const {
    return fmt::format("{}:{}", file_, node.source().begin.line);
  }

  void check_keys(const toml::table& table, const std::vector<std::string>& known,
                  std::string_view of) const {
    for (const auto& [key, node] : table) {
      const std::string name(key.str());
      LONGSPAN_CHECK_INPUT(std::find(known.begin(), known.end(), name) != known.end(),
                           "{}: {} has no key '{}'{}; its keys are {}", where(node), of, name,
                           did_you_mean(name, known), fmt::join(known, ", "));
    }
  }

  std::string string_of(const toml::node& node, std::string_view key) const {
    LONGSPAN_CHECK_INPUT(node.is_string(), "{}: '{}' must be a string in quotes", where(node), key);
    return node.as_string()->get();
  }

  std::string required_string(const toml::table& table, std::string_view key) const {
    const toml::node* node = table.get(key);
    LONGSPAN_CHECK_INPUT(node != nullptr, "{}: this table lacks '{}'", where(table), key);
    return string_of(*node, key);
  }

  std::string optional_string(const toml::table& table, std::string_view key) const {
    return table.contains(key) ? required_string(table, key) : "";
  }

  double number(const toml::table& table, std::string_view key, double preset) const {
    const toml::node* node = table.get(key);
    if (node == nullptr) return preset;
    const auto value = node->value<double>();
    LONGSPAN_CHECK_INPUT(value && *value > 0, "{}: '{}' must be a number above 0", where(*node), key);
    return *value;
  }

  Selection selection(const toml::table& claim, std::string_view key) const {
    Selection selection;
    const toml::node* node = claim.get(key);
    if (node == nullptr) return selection;
    LONGSPAN_CHECK_INPUT(node->is_table(), "{}: '{}' must be a table of fields", where(*node), key);
    for (const auto& [field, values] : *node->as_table()) {
      std::vector<std::string>& list = selection[std::string(field.str())];
      if (const toml::array* items = values.as_array()) {
        for (const toml::node& item : *items) list.push_back(string_of(item, field.str()));
      } else {
        list.push_back(string_of(values, field.str()));
      }
    }
    return selection;
  }

  Claim claim_of(const toml::table& table) const {
    check_keys(table,
               {"text", "source", "figure", "otherwise", "over", "where", "a", "b", "compare", "outcome",
                "reason", "at_least", "at_most"},
               "a claim");
    Claim claim;
    claim.text = required_string(table, "text");
    claim.source = required_string(table, "source");
    claim.figure = optional_string(table, "figure");
    claim.otherwise = optional_string(table, "otherwise");
    claim.over = required_string(table, "over");
    claim.where = selection(table, "where");
    claim.a = selection(table, "a");
    claim.b = selection(table, "b");
    claim.compare = optional_string(table, "compare");
    claim.outcome = optional_string(table, "outcome");
    claim.reason = optional_string(table, "reason");
    claim.at_least = number(table, "at_least", claim.at_least);
    claim.at_most = number(table, "at_most", claim.at_most);
    LONGSPAN_CHECK_INPUT(claim.where.contains(claim.over), "{}: 'where' lacks the values of {}", where(table),
                         claim.over);
    LONGSPAN_CHECK_INPUT(!claim.a.empty(), "{}: the claim lacks its side 'a'", where(table));
    if (claim.outcome.empty()) {
      LONGSPAN_CHECK_INPUT(claim.compare == "rate" || claim.compare == "memory",
                           "{}: 'compare' is '{}'; it must be rate or memory", where(table), claim.compare);
      LONGSPAN_CHECK_INPUT(!claim.b.empty() && (table.contains("at_least") || table.contains("at_most")),
                           "{}: a comparison needs a side 'b' and at_least or at_most", where(table));
    } else {
      LONGSPAN_CHECK_INPUT(claim.outcome == "failed" || claim.outcome == "skipped",
                           "{}: 'outcome' is '{}'; it must be failed or skipped", where(table),
                           claim.outcome);
      LONGSPAN_CHECK_INPUT(!claim.reason.empty() && claim.compare.empty() && claim.b.empty(),
                           "{}: a claim of an outcome has a 'reason', no 'compare' and no side 'b'",
                           where(table));
    }
    return claim;
  }

  std::string file_;
};

}  // namespace

Experiment parse_experiment(std::string_view text, std::string_view name) {
  return ExperimentReader(name).read(text);
}

Experiment find_experiment(const std::string& name) {
  using namespace page_assets;
  const std::array<std::pair<std::string_view, std::string_view>, 3> all = {
      {{"1", paper_1_toml}, {"2", paper_2_toml}, {"3", paper_3_toml}}};
  for (const auto& [number, text] : all) {
    if (name == number) return parse_experiment(text, fmt::format("expected/paper-{}.toml", number));
  }
  LONGSPAN_CHECK_INPUT(false, "--experiment '{}': must be 1, 2 or 3, those of arXiv 2510.17896", name);
  return {};
}

}  // namespace longspan::report
