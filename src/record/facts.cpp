#include "record/facts.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

namespace longspan::record {
namespace {

// Open objects may nest (software.libraries). Anything nested deeper is ignored.
constexpr int kDeepest = 3;

std::string scalar_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return fmt::format("{:.6g}", value.get<double>());
  return value.dump();
}

void append(Facts& facts, const Json& value, const std::string& key, int depth) {
  if (value.is_null() || depth > kDeepest) return;
  if (value.is_object()) {
    std::map<std::string_view, const Json*> sorted;
    for (const auto& [name, inner] : value.items()) sorted[name] = &inner;
    for (const auto& [name, inner] : sorted)
      append(facts, *inner, key.empty() ? std::string(name) : fmt::format("{}.{}", key, name), depth + 1);
    return;
  }
  if (value.is_array()) {
    std::string text;
    for (const Json& item : value) {
      if (item.is_structured()) return;
      text += (text.empty() ? "" : ",") + scalar_text(item);
    }
    facts.push_back({key, text, std::nullopt});
    return;
  }
  Fact fact{key, scalar_text(value), std::nullopt};
  if (value.is_number()) fact.number = value.get<double>();
  facts.push_back(std::move(fact));
}

Json copy(const Json& json, int depth) {
  if (!json.is_structured()) return json;
  if (depth > kDeepest + 1) return {};
  Json result = json.is_array() ? Json::array() : Json::object();
  if (json.is_array()) {
    for (const Json& item : json) result.push_back(copy(item, depth + 1));
  } else {
    for (const auto& [key, value] : json.items()) result.push_back({key, copy(value, depth + 1)});
  }
  return result;
}

}  // namespace

Facts facts_of(const Json& object) {
  Facts facts;
  append(facts, object, "", 0);
  return facts;
}

const Fact* find_fact(const Facts& facts, std::string_view key) {
  const auto found = std::find_if(facts.begin(), facts.end(), [&](const Fact& f) { return f.key == key; });
  return found == facts.end() ? nullptr : &*found;
}

std::string fact_text(const Facts& facts, std::string_view key) {
  const Fact* fact = find_fact(facts, key);
  return fact == nullptr ? std::string() : fact->text;
}

std::optional<double> fact_number(const Facts& facts, std::string_view key) {
  const Fact* fact = find_fact(facts, key);
  return fact == nullptr ? std::nullopt : fact->number;
}

Json shallow_copy(const Json& json) {
  return copy(json, 0);
}

}  // namespace longspan::record
