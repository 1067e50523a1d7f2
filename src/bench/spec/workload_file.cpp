#include "bench/spec/workload_file.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <ostream>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/input_file.h"
#include "base/printable.h"
#include "bench/spec/option_json.h"
#include "mask/patterns/patterns.h"
#include "record/json.h"

namespace longspan::bench {
namespace {

using record::Json;

constexpr int kVersion = 1;
constexpr int64_t kMostMicroBatches = 100000, kMostRanks = 4096, kMostHeads = 65536;

// Part of a value, for a message of one line.
std::string excerpt(const Json& value) {
  const std::string text = printable(record::text_of(value));
  return text.size() > 80 ? text.substr(0, 80) + "..." : text;
}

// Reads one object of a line. `at` is its path within the line, for messages.
class Fields {
 public:
  Fields(const Json& json, std::string at, std::vector<std::string_view> known)
      : json_(json), at_(std::move(at)) {
    LONGSPAN_CHECK_INPUT(json.is_object(), "{} must be an object, is {}", at_.empty() ? "the line" : at_,
                         excerpt(json));
    // A misspelt key would leave its preset in place.
    for (const auto& [key, value] : json.items())
      LONGSPAN_CHECK_INPUT(std::find(known.begin(), known.end(), key) != known.end(),
                           "'{}' is unknown; the keys here are {}", printable(path(key)),
                           fmt::join(known, ", "));
  }

  bool has(const char* key) const { return json_.contains(key); }

  const Json& at(const char* key) const {
    LONGSPAN_CHECK_INPUT(has(key), "'{}' is missing", path(key));
    return json_.at(key);
  }

  int64_t whole(const char* key, int64_t least, int64_t most) const {
    return whole(at(key), path(key), least, most);
  }
  static int64_t whole(const Json& value, const std::string& place, int64_t least, int64_t most) {
    const bool fits = value.is_number_integer() &&
                      (!value.is_number_unsigned() || value.get<uint64_t>() <= uint64_t{INT64_MAX});
    LONGSPAN_CHECK_INPUT(fits && least <= value.get<int64_t>() && value.get<int64_t>() <= most,
                         "'{}' must be a whole number from {} to {}, is {}", place, least, most,
                         excerpt(value));
    return value.get<int64_t>();
  }

  double number(const char* key, double most) const {
    const Json& value = at(key);
    LONGSPAN_CHECK_INPUT(value.is_number() && value.get<double>() >= 0 && value.get<double>() <= most,
                         "'{}' must be a number from 0 to {}, is {}", path(key), most, excerpt(value));
    return value.get<double>();
  }

  std::string text(const char* key) const {
    const Json& value = at(key);
    LONGSPAN_CHECK_INPUT(value.is_string(), "'{}' must be a text, is {}", path(key), excerpt(value));
    return value.get<std::string>();
  }

  const Json& list(const char* key) const {
    const Json& value = at(key);
    LONGSPAN_CHECK_INPUT(value.is_array() && !value.empty(), "'{}' must be a list that is not empty, is {}",
                         path(key), excerpt(value));
    return value;
  }

  std::string path(std::string_view key) const {
    return at_.empty() ? std::string(key) : fmt::format("{}.{}", at_, key);
  }

 private:
  const Json& json_;
  const std::string at_;
};

void read_model(const Json& json, Workload& w) {
  const Fields model(json, "model", {"heads_q", "heads_kv", "head_dim", "layers", "dtype"});
  w.heads_q = model.whole("heads_q", 1, kMostHeads);
  w.heads_kv = model.whole("heads_kv", 1, kMostHeads);
  w.head_dim = model.whole("head_dim", 1, kMostHeads);
  w.layers = model.whole("layers", 1, kMostHeads);
  if (!model.has("dtype")) return;
  try {
    w.dtype = dtype_from_name(model.text("dtype"));
  } catch (const Error& error) {
    LONGSPAN_CHECK_INPUT(false, "'model.dtype': {}", printable(error.what()));
  }
}

Workload header_from(const Json& json) {
  const Fields line(
      json, "",
      {"type", "version", "source", "model", "outside_s_per_token", "memory_bytes", "parallel", "cluster"});
  LONGSPAN_CHECK_INPUT(line.has("type") && line.at("type") == "workload",
                       "the first line must be the header, an object with \"type\": \"workload\"");
  const int64_t version = line.whole("version", 1, INT64_MAX);
  LONGSPAN_CHECK_INPUT(version == kVersion, "'version' {} is unknown; this longspan reads version {}",
                       version, kVersion);
  Workload w;
  if (line.has("source")) w.source = line.text("source");
  read_model(line.at("model"), w);
  if (line.has("outside_s_per_token")) w.outside_s_per_token = line.number("outside_s_per_token", 1);
  if (line.has("memory_bytes")) w.memory_bytes = line.number("memory_bytes", 1e15);
  if (line.has("parallel")) {
    const Fields parallel(line.at("parallel"), "parallel", {"dp", "cp", "pp", "tp"});
    for (const auto& [key, degree] :
         {std::pair{"dp", &w.dp}, std::pair{"cp", &w.cp}, std::pair{"pp", &w.pp}, std::pair{"tp", &w.tp}})
      if (parallel.has(key)) *degree = parallel.whole(key, 1, kMostRanks);
  }
  if (line.has("cluster")) {
    const Fields cluster(line.at("cluster"), "cluster", {"machine", "nodes", "gpus_per_node"});
    if (cluster.has("machine")) w.machine = cluster.text("machine");
    if (cluster.has("nodes")) w.nodes = cluster.whole("nodes", 1, kMostRanks);
    if (cluster.has("gpus_per_node")) w.gpus_per_node = cluster.whole("gpus_per_node", 1, kMostRanks);
  }
  check_header(w);
  return w;
}

std::string names_of_documents_patterns() {
  std::vector<std::string_view> names;
  for (const Pattern& pattern : patterns())
    if (pattern.documents) names.push_back(pattern.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

WorkloadStep step_from(const Json& json) {
  const Fields line(json, "", {"mask", "options", "micro_batches"});
  WorkloadStep step;
  step.mask = line.text("mask");
  const auto all = patterns();
  const auto pattern =
      std::find_if(all.begin(), all.end(), [&](const Pattern& p) { return p.name == step.mask; });
  LONGSPAN_CHECK_INPUT(pattern != all.end() && pattern->documents,
                       "'mask' must be a pattern of documents, one of {}, is {}",
                       names_of_documents_patterns(), excerpt(line.at("mask")));
  if (line.has("options")) {
    std::vector<std::string_view> known;
    for (const OptionSpec& option : pattern->options) known.push_back(option.name);
    const Fields options(line.at("options"), "options", known);
    for (const OptionSpec& option : pattern->options) {
      const std::string key(option.name);
      if (options.has(key.c_str())) step.options.set(key, option_from_json(option, options.at(key.c_str())));
    }
  }
  for (const Json& batch : line.list("micro_batches")) {
    const std::string place = fmt::format("micro_batches[{}]", step.micro_batches.size());
    LONGSPAN_CHECK_INPUT(batch.is_array() && !batch.empty(), "'{}' must be a list of document lengths, is {}",
                         place, excerpt(batch));
    MicroBatch& lengths = step.micro_batches.emplace_back();
    int64_t tokens = 0;
    for (const Json& length : batch) {
      lengths.push_back(Fields::whole(length, fmt::format("{}[{}]", place, lengths.size()), 1, kMaxTokens));
      tokens += lengths.back();
      LONGSPAN_CHECK_INPUT(tokens <= kMaxTokens, "'{}' has more than {} tokens", place, kMaxTokens);
    }
  }
  return step;
}

Json json_of(const OptionValues& values, const Pattern& pattern) {
  Json json = Json::object();
  for (const OptionSpec& option : pattern.options) {
    if (const OptionValue* value = values.find(option.name)) json[std::string(option.name)] = to_json(*value);
  }
  return json;
}

}  // namespace

int64_t tokens_of(const MicroBatch& micro_batch) {
  return std::accumulate(micro_batch.begin(), micro_batch.end(), int64_t{0});
}

void check_header(const Workload& w) {
  LONGSPAN_CHECK_INPUT(w.heads_q % w.heads_kv == 0, "heads_q {} must be a multiple of heads_kv {}", w.heads_q,
                       w.heads_kv);
  LONGSPAN_CHECK_INPUT(w.heads_q % w.tp == 0 && (w.heads_kv % w.tp == 0 || w.tp % w.heads_kv == 0),
                       "tp {} must divide heads_q {}, and divide or be a multiple of heads_kv {}", w.tp,
                       w.heads_q, w.heads_kv);
  LONGSPAN_CHECK_INPUT(w.layers % w.pp == 0, "pp {} must divide the {} layers", w.pp, w.layers);
  LONGSPAN_CHECK_INPUT(w.dp * w.cp <= kMostRanks, "dp {} times cp {} is more than {} ranks", w.dp, w.cp,
                       kMostRanks);
}

Workload parse_workload(std::string_view text, const std::string& name) {
  Workload workload;
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // the byte-order mark of some editors
  int64_t micro_batches = 0;
  bool header = false;
  for (int64_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    try {
      const Json json = record::parse_json(line);
      if (!header) {
        workload = header_from(json);
        header = true;
        continue;
      }
      workload.steps.push_back(step_from(json));
      micro_batches += std::ssize(workload.steps.back().micro_batches);
      LONGSPAN_CHECK_INPUT(micro_batches <= kMostMicroBatches, "a workload may have at most {} micro-batches",
                           kMostMicroBatches);
    } catch (const Error& error) {
      LONGSPAN_CHECK_INPUT(error.kind() != ErrorKind::kInput, "{}:{}: {}", printable(name), number,
                           printable(error.what()));
      throw;
    }
  }
  LONGSPAN_CHECK_INPUT(!workload.steps.empty(),
                       "{}: holds no step; a workload is a header and a line for each step", printable(name));
  return workload;
}

Workload read_workload(const std::string& path) {
  return parse_workload(read_input_file(path, kWorkloadFile), path);
}

void write_workload(const Workload& w, std::ostream& out) {
  Json header = {{"type", "workload"}, {"version", kVersion}};
  if (!w.source.empty()) header["source"] = w.source;
  header["model"] = {{"heads_q", w.heads_q},
                     {"heads_kv", w.heads_kv},
                     {"head_dim", w.head_dim},
                     {"layers", w.layers},
                     {"dtype", name_of(w.dtype)}};
  header["outside_s_per_token"] = w.outside_s_per_token;
  if (w.memory_bytes > 0) header["memory_bytes"] = w.memory_bytes;
  header["parallel"] = {{"dp", w.dp}, {"cp", w.cp}, {"pp", w.pp}, {"tp", w.tp}};
  Json cluster = Json::object();
  if (!w.machine.empty()) cluster["machine"] = w.machine;
  if (w.nodes > 0) cluster["nodes"] = w.nodes;
  if (w.gpus_per_node > 0) cluster["gpus_per_node"] = w.gpus_per_node;
  if (!cluster.empty()) header["cluster"] = std::move(cluster);
  out << record::text_of(header) << '\n';
  for (const WorkloadStep& step : w.steps) {
    Json line = {{"mask", step.mask}};
    Json options = json_of(step.options, pattern_from_name(step.mask));
    if (!options.empty()) line["options"] = std::move(options);
    line["micro_batches"] = step.micro_batches;
    out << record::text_of(line) << '\n';
  }
}

}  // namespace longspan::bench
