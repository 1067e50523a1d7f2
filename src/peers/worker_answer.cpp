#include "peers/worker_answer.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/error.h"

namespace longspan::peers {
namespace {

constexpr int kMostNested = 8;
constexpr size_t kMostVersions = 64;
constexpr size_t kMostReasonBytes = 500, kMostSettingsBytes = 1000, kMostVersionBytes = 100;
constexpr size_t kMostMemoryBytes = size_t{1} << 50;  // of a device whose memory is unknown

// Two clocks measure the same time: one may run faster, and ticks are rounded.
constexpr double kClockDrift = 1.01, kResolution_s = 1e-5;

// No machine writes faster. A B200's memory takes 8e12 bytes/s (NVIDIA, "DGX B200 datasheet"), and the
// first-level caches of a whole CPU some 5e13: 192 cores x 64 bytes x 3.7 GHz (AMD, "EPYC 9005 architecture
// overview").
constexpr double kMostBytesPerS = 1e14;

template <class... Arguments>
[[noreturn]] void refuse(fmt::format_string<Arguments...> message, Arguments&&... arguments) {
  throw Error(ErrorKind::kPeer, "the worker " + fmt::format(message, std::forward<Arguments>(arguments)...),
              __FILE__, __LINE__, "answer");
}

// The beginning of a text, on one line. It is cut between characters of UTF-8.
std::string one_line(std::string text, size_t most_bytes) {
  if (text.size() > most_bytes) {
    while (most_bytes > 0 && (static_cast<unsigned char>(text[most_bytes]) & 0xc0) == 0x80) --most_bytes;
    text.resize(most_bytes);
  }
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  return text;
}

// The beginning of what may not be text at all.
std::string shown(std::string_view line) {
  constexpr size_t kMost = 80;
  std::string text(line.substr(0, kMost));
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c >= 0x7f; }, '?');
  return text + (line.size() > kMost ? "..." : "");
}

std::string text_of(const Json& answer, const char* key, size_t most_bytes) {
  const auto found = answer.find(key);
  if (found == answer.end()) return "";
  if (!found->is_string())
    refuse("answered with '{}' that is a JSON {}, not a text", shown(key), found->type_name());
  return one_line(found->get<std::string>(), most_bytes);
}

const Json& required(const Json& answer, const char* key) {
  const auto found = answer.find(key);
  if (found == answer.end()) refuse("answered without '{}'", key);
  return *found;
}

double number(const Json& value, const char* key) {
  if (!value.is_number())
    refuse("answered with '{}' that is a JSON {}, not a number", key, value.type_name());
  return value.get<double>();
}

// A duration that this process has seen pass.
double duration(const Json& answer, const char* key, const Bounds& bounds) {
  const double time_s = number(required(answer, key), key);
  if (!(time_s >= 0)) refuse("answered {} = {} s; it cannot be below 0", key, time_s);
  if (!(time_s <= bounds.wall_s * kClockDrift + kResolution_s))
    refuse("answered {} = {} s, but had only {:.6f} s", key, time_s, bounds.wall_s);
  return time_s;
}

int64_t whole(const Json& value, const char* key, size_t most) {
  const bool fits = value.is_number_unsigned() && value.get<uint64_t>() <= most;
  if (!fits)
    refuse("answered {} = {}; it must be a whole number from 0 to {}", key, shown(value.dump()), most);
  return value.get<int64_t>();
}

size_t bytes(const Json& answer, const char* key, const Bounds& bounds) {
  const size_t most = bounds.most_bytes == 0 ? kMostMemoryBytes : bounds.most_bytes;
  return static_cast<size_t>(whole(required(answer, key), key, most));
}

}  // namespace

Json parse_answer(std::string_view line) {
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto check = [&](int depth, Json::parse_event_t event, const Json& parsed) {
    using Event = Json::parse_event_t;
    if (depth > kMostNested) refuse("answered '{}', which is nested too deeply", shown(line));
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(parsed.get<std::string>()).second)
      refuse("answered '{}', in which '{}' comes twice", shown(line), shown(parsed.get<std::string>()));
    return true;
  };
  Json answer = Json::parse(line, check, false);
  if (!answer.is_object()) refuse("answered '{}', which is not a JSON object", shown(line));
  const auto ok = answer.find("ok");
  if (ok == answer.end() || !ok->is_boolean())
    refuse("answered '{}' without ok = true or false", shown(line));
  return answer;
}

std::optional<Refusal> refusal_of(const Json& answer) {
  if (answer.at("ok").get<bool>()) return std::nullopt;
  const std::string kind = text_of(answer, "kind", kMostReasonBytes);
  Refusal refusal;
  if (kind == "memory") refusal.kind = ErrorKind::kOutOfMemory;
  if (kind == "unsupported") refusal.kind = ErrorKind::kUnsupported;
  refusal.reason = text_of(answer, "reason", kMostReasonBytes);
  if (refusal.reason.empty()) refusal.reason = "the worker gave no reason";
  return refusal;
}

Planned planned_of(const Json& answer, const Bounds& bounds) {
  Planned planned;
  planned.plan_s = duration(answer, "plan_s", bounds);
  planned.compile_s = duration(answer, "compile_s", bounds);
  planned.plan_bytes = bytes(answer, "plan_bytes", bounds);
  planned.settings = text_of(answer, "settings", kMostSettingsBytes);
  if (const auto drift = answer.find("drift_keys"); drift != answer.end())
    planned.drift_keys = whole(*drift, "drift_keys", size_t{1} << 31);
  return planned;
}

Ran ran_of(const Json& answer, const Bounds& bounds) {
  return {duration(answer, "compile_s", bounds), bytes(answer, "peak_bytes", bounds)};
}

std::vector<double> times_of(const Json& answer, int64_t count, size_t written_bytes, const Bounds& bounds) {
  const Json& list = required(answer, "times_s");
  if (!list.is_array() || list.empty() || list.size() > static_cast<size_t>(count))
    refuse("answered with times_s that are no list of 1 to {} numbers", count);
  const double least_s = static_cast<double>(written_bytes) / kMostBytesPerS;
  std::vector<double> times_s;
  double sum_s = 0;
  for (const Json& item : list) {
    const double time_s = number(item, "times_s");
    if (!(time_s > 0)) refuse("answered a time of {} s; it must be above 0", time_s);
    if (time_s < least_s)
      refuse("answered a time of {} s; no memory takes {} bytes in less than {:.3g} s", time_s, written_bytes,
             least_s);
    times_s.push_back(time_s);
    sum_s += time_s;
  }
  if (!(sum_s <= bounds.wall_s * kClockDrift + kResolution_s))
    refuse("answered times of {} s together, but had only {:.6f} s", sum_s, bounds.wall_s);
  return times_s;
}

std::map<std::string, std::string> versions_of(const Json& answer) {
  std::map<std::string, std::string> versions;
  const auto found = answer.find("versions");
  if (found == answer.end()) return versions;
  if (!found->is_object() || found->size() > kMostVersions)
    refuse("answered with versions that are no object of at most {} texts", kMostVersions);
  for (const auto& [package, version] : found->items())
    versions[one_line(package, kMostVersionBytes)] = text_of(*found, package.c_str(), kMostVersionBytes);
  return versions;
}

}  // namespace longspan::peers
