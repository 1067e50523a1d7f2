// Cases: the table of axes, the JSON form, and normalisation.
#include "bench/spec/case.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/input_file.h"
#include "base/nearest.h"
#include "bench/spec/mask_file.h"
#include "bench/spec/option_json.h"
#include "bench/spec/values.h"

namespace longspan::bench {
namespace {

// Whether drawing a mask uses the random generator. Tests it by drawing a small mask.
bool uses_generator(const Pattern& pattern, PatternOptions options) {
  if (pattern.block_sparse || pattern.documents) return true;
  options.seqlen = std::min<int64_t>(options.seqlen, 4096);
  Mt19937 used(options.seed), fresh(options.seed);
  try {
    draw_mask(pattern, options, used);
  } catch (const Error&) {
    return true;  // invalid at this size; drawing at the real size reports errors
  }
  return used.next() != fresh.next();
}

void check_mask(std::string_view text) {
  if (Case::is_mask_file(text)) return;
  std::vector<std::string> names;
  for (const Pattern& pattern : patterns()) names.emplace_back(pattern.name);
  LONGSPAN_CHECK_INPUT(std::find(names.begin(), names.end(), text) != names.end(),
                       "'{}' is unknown{}; the masks are {}, or a mask file (*.json)", text,
                       did_you_mean(text, names), fmt::join(names, ", "));
}

// Checks the name only. A file is read when a case needs it.
void check_lengths(std::string_view text) {
  if (text.find('/') != std::string_view::npos || text.ends_with(".csv")) return;
  const bool parsed = text.starts_with("uniform:") || text.starts_with("list:");
  bool known = text == "auto" || text == "long-mix" || parsed;
  for (const LengthHistogram& histogram : histograms()) known = known || text == histogram.name;
  LONGSPAN_CHECK_INPUT(known,
                       "'{}': must be auto, pile, prolong64k, prolong512k, long-mix, uniform:A:B, "
                       "list:A:B:..., or a file (its name "
                       "ends in .csv or contains a slash)",
                       text);
  if (parsed) LengthSource::from_name(std::string(text), 8192);
}

Axis axis_of_pattern_option(const TableOption& option) {
  const OptionSpec& spec = option.spec;
  return {.name = spec.name,
          .help = option.help(),
          .set = [&spec](Case& c, std::string_view text) { c.options.set(spec.name, spec.parse(text)); },
          .get =
              [&spec](const Case& c) {
                const OptionValue* value = c.options.find(spec.name);
                return value == nullptr ? "" : to_text(*value);
              },
          .comma_in_value = spec.kind == OptionKind::kTokenPair,
          .numeric = spec.numeric()};
}

Axis axis_of_flag(std::string_view name, std::string help, bool Case::*flag) {
  return {.name = name,
          .help = std::move(help) + ": true, false [false]",
          .set = [flag](Case& c, std::string_view text) { c.*flag = parse_bool(text); },
          .get = [flag](const Case& c) { return std::string(c.*flag ? "true" : ""); },
          .flag = true};
}

Axis axis_of_parallelism(const ParallelAxis& axis) {
  return {.name = axis.name,
          .help = axis.help,
          .set = [set = axis.set](Case& c, std::string_view text) { set(c.parallelism, text); },
          .get = [get = axis.get](const Case& c) { return get(c.parallelism); },
          .comma_in_value = axis.comma_in_value,
          .numeric = axis.numeric};
}

void set_heads(Case& c, std::string_view text) {
  const size_t colon = text.find(':');
  try {
    c.heads_q = parse_count(text.substr(0, colon), 1, 65536);
    c.heads_kv = colon == std::string_view::npos ? c.heads_q : parse_count(text.substr(colon + 1), 1, 65536);
  } catch (const Error&) {
    c.heads_q = 0;
  }
  LONGSPAN_CHECK_INPUT(
      c.heads_q > 0 && c.heads_q % c.heads_kv == 0,
      "'{}': must be QUERY:KV with QUERY a multiple of KV, such as 8:2, or one number for both", text);
}

std::vector<Axis> make_axes() {
  std::vector<Axis> axes = {
      {.name = "kernel",
       .help = "kernel names, or 'all' for all kernels of this device",
       .preset = "all",
       .set = [](Case& c, std::string_view text) { c.kernel = text; },
       .get = [](const Case& c) { return c.kernel; }},
      {.name = "mask",
       .help = "mask patterns or mask files (*.json); 'all', 'dense' and 'block-sparse' stand for groups of "
               "patterns",
       .set =
           [](Case& c, std::string_view text) {
             check_mask(text);
             c.mask = text;
           },
       .get = [](const Case& c) { return c.mask; },
       .required = true},
      {.name = "seqlen",
       .help = "sequence lengths in tokens: 8192, 8K, 1M",
       .set = [](Case& c, std::string_view text) { c.seqlen = parse_count(text, 1, kMaxTokens); },
       .get = [](const Case& c) { return fmt::format("{}", c.seqlen); },
       .required = true,
       .numeric = true},
      {.name = "heads",
       .help = "query heads : KV heads, such as 8:2; one number for both",
       .preset = "8:2",
       .set = set_heads,
       .get = [](const Case& c) { return fmt::format("{}:{}", c.heads_q, c.heads_kv); }},
      {.name = "head_dim",
       .help = "head dimension",
       .preset = "128",
       .set = [](Case& c, std::string_view text) { c.head_dim = parse_count(text, 1, 65536); },
       .get = [](const Case& c) { return fmt::format("{}", c.head_dim); },
       .numeric = true},
      {.name = "head_dim_v",
       .help = "head dimension of v and o [head_dim]",
       .set = [](Case& c, std::string_view text) { c.head_dim_v = parse_count(text, 1, 65536); },
       .get = [](const Case& c) { return c.head_dim_v == 0 ? "" : fmt::format("{}", c.head_dim_v); },
       .numeric = true},
      {.name = "dtype",
       .help = "element types: f32, bf16, f16",
       .preset = "f32",
       .set = [](Case& c, std::string_view text) { c.dtype = dtype_from_name(text); },
       .get = [](const Case& c) { return std::string(name_of(c.dtype)); }},
      {.name = "direction",
       .help = "forward or fwd; backward or bwd (the backward pass alone)",
       .preset = "forward",
       .set = [](Case& c, std::string_view text) { c.direction = direction_from_name(text); },
       .get = [](const Case& c) { return std::string(name_of(c.direction)); }},
      {.name = "masks",
       .help = "number of masks to draw and average, for random patterns",
       .preset = "1",
       .set = [](Case& c, std::string_view text) { c.masks = parse_count(text, 1, 1000); },
       .get = [](const Case& c) { return fmt::format("{}", c.masks); },
       .numeric = true},
      {.name = "lengths",
       .help =
           "document lengths: auto, pile, prolong64k, prolong512k, long-mix, uniform:A:B, list:A:B:..., or "
           "a CSV file",
       .preset = "auto",
       .set =
           [](Case& c, std::string_view text) {
             check_lengths(text);
             c.lengths = text;
           },
       .get = [](const Case& c) { return c.lengths; }},
      {.name = "seed",
       .help = "seed of masks and inputs",
       .preset = "42",
       .set = [](Case& c, std::string_view text) { c.seed = parse_seed(text); },
       .get = [](const Case& c) { return fmt::format("{}", c.seed); },
       .numeric = true}};
  for (const TableOption& option : pattern_options()) axes.push_back(axis_of_pattern_option(option));
  axes.push_back(
      axis_of_flag("deterministic", "require bitwise-identical results on every run", &Case::deterministic));
  axes.push_back(axis_of_flag("sinks", "an attention sink for each query head, as in gpt-oss", &Case::sinks));
  axes.push_back({.name = "softcap",
                  .help = "bound of the scores, as in Gemma 2 [none]",
                  .set = [](Case& c, std::string_view text) { c.softcap = parse_real(text, 0, 1e6); },
                  .get = [](const Case& c) { return c.softcap == 0 ? "" : fmt::format("{}", c.softcap); },
                  .numeric = true});
  axes.push_back(axis_of_flag("alibi", "ALiBi, with its paper's slope for each query head", &Case::alibi));
  for (const ParallelAxis& axis : parallel_axes()) axes.push_back(axis_of_parallelism(axis));
  for (const Axis& axis : axes) {
    LONGSPAN_CHECK(std::count_if(axes.begin(), axes.end(),
                                 [&](const Axis& other) { return other.name == axis.name; }) == 1,
                   "two axes are named {}; rename the option of the pattern or strategy", axis.name);
  }
  return axes;
}

// Keys of a case that are absent unless they are true.
constexpr std::pair<const char*, bool Case::*> kFlags[] = {
    {"deterministic", &Case::deterministic}, {"sinks", &Case::sinks}, {"alibi", &Case::alibi}};

// Results must not contain absolute paths.
std::string relative(const std::string& path) {
  std::error_code error;
  const std::string shorter = std::filesystem::proximate(path, error).string();
  return std::filesystem::path(path).is_absolute() && !error ? shorter : path;
}

std::string hash_of_file(const std::string& path, const InputKind& kind) {
  return hex16(hash64(read_input_file(path, kind)));
}

// The value of a required key, which must have this type.
template <class T>
T required(const nlohmann::json& json, const char* key) {
  const auto it = json.find(key);
  LONGSPAN_CHECK_INPUT(it != json.end(), "the case lacks the key '{}'", key);
  bool fits = false;
  if constexpr (std::is_same_v<T, std::string>) {
    fits = it->is_string();
  } else if constexpr (std::is_floating_point_v<T>) {
    fits = it->is_number();
  } else if constexpr (std::is_unsigned_v<T>) {
    fits = it->is_number_unsigned();
  } else {
    fits = it->is_number_integer() && (!it->is_number_unsigned() || it->get<uint64_t>() <= INT64_MAX);
  }
  LONGSPAN_CHECK_INPUT(fits, "the case's key '{}' has a value of the wrong type", key);
  return it->get<T>();
}

}  // namespace

PatternOptions Case::pattern_options(int64_t index) const {
  PatternOptions drawn_with;
  drawn_with.seqlen = seqlen;
  drawn_with.seed = seed;
  drawn_with.index = index;
  if (!lengths.empty()) drawn_with.lengths = lengths;
  drawn_with.kv_heads = heads_kv;
  drawn_with.values = options;
  return drawn_with;
}

nlohmann::json to_json(const Case& c) {
  nlohmann::json options = nlohmann::json::object();
  for (const TableOption& option : pattern_options()) {
    if (const OptionValue* value = c.options.find(option.spec.name))
      options[std::string(option.spec.name)] = to_json(*value);
  }
  if (!c.file_hash.empty()) options["file_hash"] = c.file_hash;
  nlohmann::json json = {{"kernel", c.kernel},
                         {"mask", c.mask},
                         {"options", std::move(options)},
                         {"seqlen", c.seqlen},
                         {"heads_q", c.heads_q},
                         {"heads_kv", c.heads_kv},
                         {"head_dim", c.head_dim},
                         {"dtype", name_of(c.dtype)},
                         {"direction", name_of(c.direction)},
                         {"masks", c.masks},
                         {"lengths", c.lengths.empty() ? nlohmann::json() : nlohmann::json(c.lengths)},
                         {"seed", c.seed}};
  if (c.head_dim_v != 0) json["head_dim_v"] = c.head_dim_v;
  for (const auto& [key, flag] : kFlags) {
    if (c.*flag) json[key] = true;
  }
  if (c.softcap != 0) json["softcap"] = c.softcap;
  add_to_json(c.parallelism, json);
  return json;
}

Case case_from_json(const nlohmann::json& json) {
  LONGSPAN_CHECK_INPUT(json.is_object(), "the case is not an object");
  Case c;
  c.kernel = required<std::string>(json, "kernel");
  c.mask = required<std::string>(json, "mask");
  c.seqlen = required<int64_t>(json, "seqlen");
  c.heads_q = required<int64_t>(json, "heads_q");
  c.heads_kv = required<int64_t>(json, "heads_kv");
  c.head_dim = required<int64_t>(json, "head_dim");
  c.dtype = dtype_from_name(required<std::string>(json, "dtype"));
  c.direction = direction_from_name(required<std::string>(json, "direction"));
  c.masks = required<int64_t>(json, "masks");
  c.seed = required<uint64_t>(json, "seed");
  if (const auto it = json.find("lengths"); it != json.end() && !it->is_null()) {
    c.lengths = required<std::string>(json, "lengths");
  }
  if (json.contains("head_dim_v")) c.head_dim_v = required<int64_t>(json, "head_dim_v");
  if (json.contains("softcap")) c.softcap = required<double>(json, "softcap");
  for (const auto& [key, flag] : kFlags) {
    const auto it = json.find(key);
    if (it == json.end()) continue;
    LONGSPAN_CHECK_INPUT(it->is_boolean(), "the case's key '{}' is neither true nor false", key);
    c.*flag = it->get<bool>();
  }
  c.parallelism = parallelism_from_json(json);
  const auto options = json.find("options");
  if (options == json.end()) return c;
  LONGSPAN_CHECK_INPUT(options->is_object(), "the case's options are not an object");
  for (const TableOption& option : pattern_options()) {
    if (const auto it = options->find(option.spec.name); it != options->end())
      c.options.set(option.spec.name, option_from_json(option.spec, *it));
  }
  if (options->contains("file_hash")) c.file_hash = required<std::string>(*options, "file_hash");
  return c;
}

std::string id_of(const Case& c) {
  return hex16(hash64(to_json(c).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
}

Case normalised(Case c) {
  c.parallelism = normalised(c.parallelism, c.heads_q, c.heads_kv);
  if (c.head_dim_v == c.head_dim) c.head_dim_v = 0;
  if (c.mask_is_file()) {
    c.mask = relative(c.mask);
    c.file_hash = hash_of_file(c.mask, kMaskFile);
    c.seqlen = read_masks(c.mask).front().rows();
    c.masks = 1;
    c.lengths.clear();
    c.options = {};
    return c;
  }
  const Pattern& pattern = pattern_from_name(c.mask);
  c.file_hash.clear();
  if (!pattern.documents) c.lengths.clear();
  if (!c.lengths.empty()) {
    const LengthSource source = LengthSource::from_name(c.lengths, c.seqlen);
    if (c.lengths == "auto") c.lengths = source.name();
    if (std::error_code none; std::filesystem::exists(c.lengths, none)) {
      c.lengths = relative(c.lengths);
      c.file_hash = hash_of_file(c.lengths, kLengthsFile);
    }
  }
  c.options.keep(pattern.options);
  if (pattern.complete != nullptr) pattern.complete(c.options);
  if (c.masks > 1 && !uses_generator(pattern, c.pattern_options(0))) c.masks = 1;
  return c;
}

std::string describe(const Case& c) {
  Case alone = c;
  alone.parallelism = {};
  std::string options;
  for (const Axis& axis : axes()) {
    if (!axis.required && axis.preset.empty() && !axis.get(alone).empty()) {
      options += fmt::format(" {}={}", axis.name, axis.get(alone));
    }
  }
  const std::string spread = c.parallelism ? ", " + describe(c.parallelism) : "";
  return fmt::format("{} {}{} {}, {}:{} heads of {}, {}, {}{}", c.kernel, c.mask, options,
                     format_length(c.seqlen), c.heads_q, c.heads_kv, c.head_dim, name_of(c.dtype),
                     name_of(c.direction), spread);
}

std::vector<std::string> arguments_of(const Case& c) {
  std::vector<std::string> arguments{"run"};
  for (const Axis& axis : axes()) {
    const std::string value = axis.get(c);
    if (value.empty()) continue;
    arguments.push_back(option_name(axis.name));
    arguments.push_back(axis.name == "seqlen" ? format_length(c.seqlen) : value);
  }
  return arguments;
}

std::span<const Axis> axes() {
  static const std::vector<Axis> all = make_axes();
  return all;
}

const Axis* find_axis(std::string_view name) {
  for (const Axis& axis : axes()) {
    if (axis.name == name) return &axis;
  }
  return nullptr;
}

}  // namespace longspan::bench
