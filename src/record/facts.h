// An object with possibly unknown keys as a list of facts to display: "cpus" is 8.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "record/json.h"

namespace longspan::record {

// One key, nested keys joined by '.'.
struct Fact {
  std::string key;
  std::string text;  // the value as displayed: 8, 0.05, "performance", "256,256"
  std::optional<double> number;
};
using Facts = std::vector<Fact>;

// Sorted by key at each level. Null values and values nested too deeply are left out.
Facts facts_of(const Json& object);

const Fact* find_fact(const Facts& facts, std::string_view key);  // null if absent
std::string fact_text(const Facts& facts, std::string_view key);  // empty if absent
std::optional<double> fact_number(const Facts& facts, std::string_view key);

// A copy down to the depth that facts_of reads; anything deeper is null. Copying JSON is recursive, and a
// file may be nested arbitrarily deep.
Json shallow_copy(const Json& json);

}  // namespace longspan::record
