// One line of a results file as a typed record; inside report only. Everything malformed is an input error
// that names the file and the line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "report/results.h"

namespace longspan::report::results_line {

// Where in the input a message points to.
struct Place {
  std::string_view file;
  int64_t line;
};

[[noreturn]] void malformed(const Place& at, const std::string& what);

// What the schema says of every line.
struct Envelope {
  std::string type;  // "run", "case", or something of a later version
  std::string run;   // the run it announces or belongs to
};

nlohmann::json parse_json(std::string_view line, const Place& at);
Envelope parse_envelope(const nlohmann::json& line, const Place& at);
RunRecord parse_run(const nlohmann::json& line, const Place& at);
std::optional<ParallelRecord> parse_parallel(const nlohmann::json& line, const Place& at);
CaseRecord parse_case(const nlohmann::json& line, const Place& at);  // without its index of the run

}  // namespace longspan::report::results_line
