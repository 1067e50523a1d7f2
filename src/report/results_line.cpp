#include "report/results_line.h"

#include <cmath>
#include <set>

#include "base/error.h"

namespace longspan::report::results_line {
namespace {

using Json = nlohmann::json;

// The value of a key, or null where it is absent or null: the schema holds them for the same.
const Json* value_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

const Json* object_of(const Json& parent, const char* key, const Place& at) {
  const Json* value = value_of(parent, key);
  if (value != nullptr && !value->is_object()) {
    malformed(at, fmt::format("'{}' is a JSON {}, not an object", key, value->type_name()));
  }
  return value;
}

const Json* array_of(const Json& parent, const char* key, const Place& at) {
  const Json* value = value_of(parent, key);
  if (value != nullptr && !value->is_array()) {
    malformed(at, fmt::format("'{}' is a JSON {}, not an array", key, value->type_name()));
  }
  return value;
}

std::string string_of(const Json& parent, const char* key, const Place& at) {
  const Json* value = value_of(parent, key);
  if (value == nullptr) return {};
  if (!value->is_string())
    malformed(at, fmt::format("'{}' is a JSON {}, not a string", key, value->type_name()));
  return value->get<std::string>();
}

std::string required_string(const Json& parent, const char* key, const Place& at) {
  std::string text = string_of(parent, key, at);
  if (text.empty()) malformed(at, fmt::format("'{}' is missing or empty", key));
  return text;
}

double number_from(const Json& value, const char* key, const Place& at) {
  if (!value.is_number())
    malformed(at, fmt::format("'{}' is a JSON {}, not a number", key, value.type_name()));
  return value.get<double>();
}

// Nothing in the schema is below 0.
std::optional<double> number_of(const Json& parent, const char* key, const Place& at) {
  const Json* value = value_of(parent, key);
  if (value == nullptr) return std::nullopt;
  const double number = number_from(*value, key, at);
  if (number < 0) malformed(at, fmt::format("'{}' is {}; it cannot be below 0", key, number));
  return number;
}

double positive_from(const Json& value, const char* key, const Place& at) {
  const double number = number_from(value, key, at);
  if (!(number > 0)) malformed(at, fmt::format("'{}' is {}; it must be above 0", key, number));
  return number;
}

std::optional<double> positive_of(const Json& parent, const char* key, const Place& at) {
  const Json* value = value_of(parent, key);
  if (value == nullptr) return std::nullopt;
  return positive_from(*value, key, at);
}

int64_t integer_of(const Json& parent, const char* key, int64_t otherwise, const Place& at) {
  const std::optional<double> number = number_of(parent, key, at);
  if (!number) return otherwise;
  constexpr double kExact = 9007199254740992.0;  // 2^53: beyond it a double skips integers
  if (*number > kExact || *number != std::floor(*number)) {
    malformed(at, fmt::format("'{}' is {}; it must be a whole number up to 2^53", key, *number));
  }
  return static_cast<int64_t>(*number);
}

std::optional<Interval> interval_of(const Json& parent, const char* key, const Place& at) {
  const Json* value = array_of(parent, key, at);
  if (value == nullptr) return std::nullopt;
  if (value->size() != 2) malformed(at, fmt::format("'{}' must be [lo, hi]", key));
  if ((*value)[0].is_null() || (*value)[1].is_null()) return std::nullopt;
  const Interval interval{positive_from((*value)[0], key, at), positive_from((*value)[1], key, at)};
  if (interval.lo > interval.hi) malformed(at, fmt::format("'{}' must be [lo, hi] with lo <= hi", key));
  return interval;
}

std::vector<std::string> strings_of(const Json& parent, const char* key, const Place& at) {
  std::vector<std::string> strings;
  if (const Json* list = array_of(parent, key, at)) {
    for (const Json& item : *list) {
      if (!item.is_string()) malformed(at, fmt::format("'{}' must hold strings", key));
      strings.push_back(item.get<std::string>());
    }
  }
  return strings;
}

std::string scalar_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return fmt::format("{:.6g}", value.get<double>());
  return value.dump();
}

// Open-ended objects may nest (software.libraries); deeper than this is noise, not a fact.
constexpr int kDeepestFact = 3;

void append_facts(Facts& facts, const Json& value, const std::string& key, int depth) {
  if (value.is_null() || depth > kDeepestFact) return;
  if (value.is_object()) {
    for (const auto& [name, inner] : value.items()) {
      append_facts(facts, inner, key.empty() ? name : key + "." + name, depth + 1);
    }
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

Facts facts_of(const Json& parent, const char* key, const Place& at) {
  Facts facts;
  if (const Json* object = object_of(parent, key, at)) append_facts(facts, *object, "", 0);
  return facts;
}

Workload parse_workload(const Json& line, const Place& at) {
  const Json* object = object_of(line, "case", at);
  if (object == nullptr) malformed(at, "'case' is missing");
  Workload w;
  w.kernel = required_string(*object, "kernel", at);
  w.mask = required_string(*object, "mask", at);
  w.dtype = string_of(*object, "dtype", at);
  w.direction = string_of(*object, "direction", at);
  if (const Json* lengths = value_of(*object, "lengths")) w.lengths = scalar_text(*lengths);
  w.seqlen = integer_of(*object, "seqlen", 0, at);
  w.heads_q = integer_of(*object, "heads_q", 0, at);
  w.heads_kv = integer_of(*object, "heads_kv", 0, at);
  w.head_dim = integer_of(*object, "head_dim", 0, at);
  w.masks = integer_of(*object, "masks", 1, at);
  w.options = facts_of(*object, "options", at);
  if (const Json* deterministic = value_of(*object, "deterministic")) {
    if (!deterministic->is_boolean()) malformed(at, "'deterministic' must be true or false");
    w.deterministic = deterministic->get<bool>();
  }
  static const std::set<std::string, std::less<>> known = {
      "kernel", "mask",      "options", "seqlen",  "heads_q", "heads_kv",  "head_dim",
      "dtype",  "direction", "masks",   "lengths", "seed",    "file_hash", "deterministic"};
  for (const auto& [key, value] : object->items()) {
    if (!known.contains(key)) append_facts(w.extra, value, key, 0);
  }
  return w;
}

Status parse_status(const Json& line, const Place& at) {
  const std::string text = required_string(line, "status", at);
  for (Status status : {Status::kOk, Status::kSkipped, Status::kFailed}) {
    if (text == name_of(status)) return status;
  }
  malformed(at, fmt::format("status '{}' is unknown; it is one of ok, skipped, failed", text));
}

std::optional<Accuracy> parse_accuracy(const Json& line, const Place& at) {
  const Json* object = object_of(line, "accuracy", at);
  if (object == nullptr) return std::nullopt;
  Accuracy accuracy;
  accuracy.checked = strings_of(*object, "checked", at);
  if (const Json* counting = value_of(*object, "counting")) accuracy.counting = scalar_text(*counting);
  if (const Json* same_bits = value_of(*object, "same_bits"); same_bits != nullptr && same_bits->is_boolean())
    accuracy.same_bits = same_bits->get<bool>();
  const Json* tolerances = object_of(*object, "tolerance", at);
  if (const Json* errors = object_of(*object, "max_error", at)) {
    for (const auto& [tensor, value] : errors->items()) {
      if (value.is_null()) continue;
      ErrorFigure figure{tensor, number_from(value, "max_error", at), std::nullopt};
      if (tolerances != nullptr) figure.tolerance = number_of(*tolerances, tensor.c_str(), at);
      accuracy.errors.push_back(std::move(figure));
    }
  }
  return accuracy;
}

Measurement parse_measurement(const Json& entry, const Place& at) {
  if (!entry.is_object()) malformed(at, "an entry of 'measurements' is not an object");
  Measurement m;
  m.index = integer_of(entry, "index", 0, at);
  m.area = number_of(entry, "area", at).value_or(0);
  m.flops = number_of(entry, "flops", at).value_or(0);
  m.plan_s = number_of(entry, "plan_s", at);
  m.median_s = positive_of(entry, "median_s", at);
  m.interval_s = interval_of(entry, "interval_s", at);
  m.params = facts_of(entry, "params", at);
  if (const Json* converged = value_of(entry, "converged"); converged != nullptr && converged->is_boolean()) {
    m.converged = converged->get<bool>();
  }
  if (const Json* documents = value_of(entry, "documents")) {
    m.documents = documents->is_array() ? static_cast<int64_t>(documents->size())
                                        : integer_of(entry, "documents", 0, at);
  }
  if (const Json* samples = array_of(entry, "samples_s", at)) {
    m.samples_s.reserve(samples->size());
    for (const Json& sample : *samples) m.samples_s.push_back(positive_from(sample, "samples_s", at));
  }
  return m;
}

// Base64 as RFC 4648 has it, padding included; no value for anything else.
std::optional<std::vector<uint8_t>> decode_base64(std::string_view text) {
  const auto value = [](char c) {
    constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t at = kAlphabet.find(c);
    return at == std::string_view::npos ? -1 : static_cast<int>(at);
  };
  if (text.size() % 4 != 0) return std::nullopt;
  size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  std::vector<uint8_t> bytes;
  bytes.reserve(text.size() / 4 * 3);
  for (size_t i = 0; i < text.size(); i += 4) {
    const size_t meant = i + 4 == text.size() ? 4 - padding : 4;
    uint32_t word = 0;
    for (size_t j = 0; j < 4; ++j) {
      const int digit = j < meant ? value(text[i + j]) : 0;
      if (digit < 0) return std::nullopt;
      word = word << 6 | static_cast<uint32_t>(digit);
    }
    for (size_t j = 0; j + 1 < meant; ++j) bytes.push_back(static_cast<uint8_t>(word >> (16 - 8 * j)));
  }
  return bytes;
}

std::optional<Picture> parse_picture(const Json& line, const Place& at) {
  const Json* object = object_of(line, "picture", at);
  if (object == nullptr) return std::nullopt;
  constexpr int64_t kLargest = 1024;  // of a side: more is no small picture
  Picture picture;
  picture.size = integer_of(*object, "size", 0, at);
  if (picture.size < 1 || picture.size > kLargest) {
    malformed(at, fmt::format("'picture' has size {}; it must be 1 to {}", picture.size, kLargest));
  }
  auto cells = decode_base64(string_of(*object, "data", at));
  if (!cells || cells->size() != static_cast<size_t>(picture.size * picture.size)) {
    malformed(
        at, fmt::format("'picture' must hold size * size = {} bytes in base64", picture.size * picture.size));
  }
  picture.cells = std::move(*cells);
  return picture;
}

}  // namespace

void malformed(const Place& at, const std::string& what) {
  throw Error(ErrorKind::kInput, fmt::format("{}:{}: {}", at.file, at.line, what), __FILE__, __LINE__, "");
}

Envelope parse_envelope(const Json& line, const Place& at) {
  if (!line.is_object()) malformed(at, fmt::format("a JSON {}, not an object", line.type_name()));
  const Json* schema = value_of(line, "schema");
  if (schema == nullptr) malformed(at, "'schema' is missing: this is not a line of a longspan results file");
  if (!schema->is_number_integer() || *schema != kResultsSchema) {
    malformed(at, fmt::format(
                      "schema {} is unknown; this longspan reads schema {}: use the longspan that wrote the "
                      "file, or a newer one",
                      schema->is_structured() ? std::string(schema->type_name()) : scalar_text(*schema),
                      kResultsSchema));
  }
  return {required_string(line, "type", at), string_of(line, "run", at)};
}

RunRecord parse_run(const Json& line, const Place& at) {
  RunRecord run;
  run.id = required_string(line, "run", at);
  run.started = string_of(line, "started", at);
  run.command = string_of(line, "command", at);
  run.suite = string_of(line, "suite", at);
  run.machine = facts_of(line, "machine", at);
  run.device = facts_of(line, "device", at);
  run.software = facts_of(line, "software", at);
  run.rule = facts_of(line, "rule", at);
  if (const Json* ceilings = object_of(line, "ceilings", at)) {
    for (const auto& [dtype, value] : ceilings->items()) {
      if (value.is_null()) continue;
      if (!value.is_object()) malformed(at, fmt::format("ceiling '{}' is not an object", dtype));
      if (auto rate = positive_of(value, "flops_per_s", at)) {
        run.ceilings.push_back({dtype, string_of(value, "what", at), *rate});
      }
    }
  }
  return run;
}

CaseRecord parse_case(const Json& line, const Place& at) {
  CaseRecord c;
  c.id = required_string(line, "id", at);
  c.workload = parse_workload(line, at);
  c.command = string_of(line, "command", at);
  c.status = parse_status(line, at);
  c.reason = string_of(line, "reason", at);
  c.started = string_of(line, "started", at);
  c.elapsed_s = number_of(line, "elapsed_s", at);
  c.area = number_of(line, "area", at);
  c.density = number_of(line, "density", at);
  c.flops = number_of(line, "flops", at);
  c.time_s = positive_of(line, "time_s", at);
  c.interval_s = interval_of(line, "interval_s", at);
  c.flops_per_s = number_of(line, "flops_per_s", at);
  c.share_of_ceiling = number_of(line, "share_of_ceiling", at);
  c.plan_s = number_of(line, "plan_s", at);
  c.plan_bytes = number_of(line, "plan_bytes", at);
  c.workspace_bytes = number_of(line, "workspace_bytes", at);
  c.peak_bytes = number_of(line, "peak_bytes", at);
  if (const Json* throttled = value_of(line, "throttled"); throttled != nullptr && throttled->is_number()) {
    c.throttled = number_of(line, "throttled", at);
  }
  c.accuracy = parse_accuracy(line, at);
  c.device_state = facts_of(line, "device_state", at);
  if (const Json* list = array_of(line, "measurements", at)) {
    for (const Json& entry : *list) c.measurements.push_back(parse_measurement(entry, at));
  }
  c.picture = parse_picture(line, at);
  c.parallel = parse_parallel(line, at);
  if (c.status == Status::kOk && !c.time_s) malformed(at, "status is ok but 'time_s' is missing");
  return c;
}

Json parse_json(std::string_view line, const Place& at) {
  try {
    return Json::parse(line);
  } catch (const Json::exception& error) {
    malformed(at, fmt::format("not valid JSON ({})", error.what()));
  }
}

}  // namespace longspan::report::results_line
