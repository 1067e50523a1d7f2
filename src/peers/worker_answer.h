// The answers of a peer's worker, read and checked. A peer is not our code, so nothing in an answer is
// believed that cannot be true. All functions throw only an Error of kind kPeer, whose one line fails the
// case.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "longspan/base.h"

namespace longspan::peers {

using Json = nlohmann::json;

// A longer line is refused before its end has come. 100,000 samples take 2 MB.
inline constexpr size_t kMostAnswerBytes = size_t{16} << 20;

// One line: an object with a boolean `ok`, in which no key comes twice and little is nested.
Json parse_answer(std::string_view line);

struct Refusal {
  ErrorKind kind = ErrorKind::kPeer;  // or kUnsupported, kOutOfMemory
  std::string reason;                 // one line
};
std::optional<Refusal> refusal_of(const Json& answer);  // nothing if it is ok

// What an answer may claim.
struct Bounds {
  double wall_s = 0;      // how long the worker had, by this process's clock
  size_t most_bytes = 0;  // the device's memory; 0 if unknown
};

struct Planned {
  double plan_s = 0, compile_s = 0;
  size_t plan_bytes = 0;
  std::string settings;
  int64_t drift_keys = 0;
};
Planned planned_of(const Json& answer, const Bounds& bounds);

struct Ran {
  double compile_s = 0;
  size_t peak_bytes = 0;
};
Ran ran_of(const Json& answer, const Bounds& bounds);

// 1 to `count` samples of runs that write `written_bytes` each: none shorter than any memory allows, and all
// of them together no longer than the request took.
std::vector<double> times_of(const Json& answer, int64_t count, size_t written_bytes, const Bounds& bounds);

std::map<std::string, std::string> versions_of(const Json& answer);

}  // namespace longspan::peers
