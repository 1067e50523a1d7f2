// An object whose keys are not all known, as a list of facts for a reader: "cpus" is 8.
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
  std::string text;  // as a reader would write it: 8, 0.05, "performance", "256,256"
  std::optional<double> number;
};
using Facts = std::vector<Fact>;

// Sorted by key at each level. Null values and values nested too deeply are left out.
Facts facts_of(const Json& object);

const Fact* find_fact(const Facts& facts, std::string_view key);  // null where absent
std::string fact_text(const Facts& facts, std::string_view key);  // empty where absent
std::optional<double> fact_number(const Facts& facts, std::string_view key);

// A copy down to where facts_of reads; below that everything is null. Copying JSON takes stack for each
// level, and a file may nest without end.
Json shallow_copy(const Json& json);

}  // namespace longspan::record
