#include "bench/spec/case.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "bench/spec/mask_file.h"
#include "bench/spec/values.h"

namespace longspan::bench {
namespace {

constexpr int64_t kMaxTokens = int64_t{1} << 32;

std::string format(const std::optional<int64_t>& value) {
  return value ? fmt::format("{}", *value) : "";
}

std::string format(const Window& window) {
  return window.right ? fmt::format("{},{}", window.left, *window.right) : fmt::format("{}", window.left);
}

bool reads(const Pattern& pattern, std::string_view parameter) {
  for (const std::string& name : split(pattern.parameters, ',')) {
    if (name == parameter) return true;
  }
  return false;
}

// Does drawing a mask take anything from the generator? Asked of the pattern itself, at a small size.
bool draws_anything(const Pattern& pattern, PatternOptions options) {
  if (pattern.block_sparse || pattern.documents) return true;
  options.seqlen = std::min<int64_t>(options.seqlen, 4096);
  Mt19937 used(options.seed), fresh(options.seed);
  try {
    draw_mask(pattern, options, used);
  } catch (const Error&) {
    return true;  // not at this size: the pattern will say so itself at the real one
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

// That a name is one that there is. A file is looked into when a case needs it.
void check_lengths(std::string_view text) {
  if (text.find('/') != std::string_view::npos || text.ends_with(".csv")) return;
  bool known = text == "auto" || text == "long-mix" || text.starts_with("uniform:");
  for (const LengthHistogram& histogram : histograms()) known = known || text == histogram.name;
  LONGSPAN_CHECK_INPUT(
      known,
      "'{}': must be auto, pile, prolong64k, prolong512k, long-mix, uniform:A:B, or a file: a name "
      "that ends in .csv or holds a slash",
      text);
  if (text.starts_with("uniform:")) LengthSource::from_name(std::string(text), 8192);
}

Window parse_window(std::string_view text) {
  const size_t comma = text.find(',');
  try {
    Window window;
    window.left = parse_count(trimmed(text.substr(0, comma)), 0, kMaxTokens);
    if (comma != std::string_view::npos)
      window.right = parse_count(trimmed(text.substr(comma + 1)), 0, kMaxTokens);
    return window;
  } catch (const Error&) {
    LONGSPAN_CHECK_INPUT(false, "'{}': must be LEFT,RIGHT or one number, such as 1024,0", text);
  }
  return {};
}

// The axes of a case's parallelism have their meaning there.
constexpr const char kStrategy[] = "strategy", kRanks[] = "ranks", kTopology[] = "topology",
                     kUlysses[] = "ulysses", kInnerRing[] = "inner_ring", kPlacement[] = "placement",
                     kSharding[] = "sharding", kSkip[] = "skip", kTransport[] = "transport";

template <const char* name>
constexpr Axis parallel_axis(std::string_view help) {
  return {name,
          help,
          "",
          false,
          false,
          [](Case& c, std::string_view text) { set_parallelism(c.parallelism, name, text); },
          [](const Case& c) { return get_parallelism(c.parallelism, name); }};
}

constexpr Axis kAxes[] = {
    {"kernel", "kernels by name; 'all': all that this device offers", "all", false, false,
     [](Case& c, std::string_view text) { c.kernel = text; }, [](const Case& c) { return c.kernel; }},
    {"mask", "mask patterns, or mask files (*.json); 'all', 'dense' and 'block-sparse' name groups", "",
     false, true,
     [](Case& c, std::string_view text) {
       check_mask(text);
       c.mask = text;
     },
     [](const Case& c) { return c.mask; }},
    {"seqlen", "sequence lengths in tokens: 8192, 8K, 1M", "", false, true,
     [](Case& c, std::string_view text) { c.seqlen = parse_count(text, 1, kMaxTokens); },
     [](const Case& c) { return fmt::format("{}", c.seqlen); }},
    {"heads", "query heads : KV heads, such as 8:2; one number for both", "8:2", false, false,
     [](Case& c, std::string_view text) {
       const size_t colon = text.find(':');
       try {
         c.heads_q = parse_count(text.substr(0, colon), 1, 65536);
         c.heads_kv =
             colon == std::string_view::npos ? c.heads_q : parse_count(text.substr(colon + 1), 1, 65536);
       } catch (const Error&) {
         c.heads_q = 0;
       }
       LONGSPAN_CHECK_INPUT(
           c.heads_q > 0 && c.heads_q % c.heads_kv == 0,
           "'{}': must be QUERY:KV with QUERY a multiple of KV, such as 8:2, or one number for both", text);
     },
     [](const Case& c) { return fmt::format("{}:{}", c.heads_q, c.heads_kv); }},
    {"head_dim", "dimensions of a head", "128", false, false,
     [](Case& c, std::string_view text) { c.head_dim = parse_count(text, 1, 65536); },
     [](const Case& c) { return fmt::format("{}", c.head_dim); }},
    {"dtype", "element types: f32, bf16, f16", "f32", false, false,
     [](Case& c, std::string_view text) { c.dtype = dtype_from_name(text); },
     [](const Case& c) { return std::string(name_of(c.dtype)); }},
    {"direction", "forward or fwd; backward or bwd (the backward pass alone)", "forward", false, false,
     [](Case& c, std::string_view text) { c.direction = direction_from_name(text); },
     [](const Case& c) { return std::string(name_of(c.direction)); }},
    {"masks", "masks drawn and averaged, where a mask is drawn", "1", false, false,
     [](Case& c, std::string_view text) { c.masks = parse_count(text, 1, 1000); },
     [](const Case& c) { return fmt::format("{}", c.masks); }},
    {"lengths", "document lengths: auto, pile, prolong64k, prolong512k, long-mix, uniform:A:B, or a CSV file",
     "auto", false, false,
     [](Case& c, std::string_view text) {
       check_lengths(text);
       c.lengths = text;
     },
     [](const Case& c) { return c.lengths; }},
    {"seed", "seed of masks and inputs", "42", false, false,
     [](Case& c, std::string_view text) { c.seed = parse_seed(text); },
     [](const Case& c) { return fmt::format("{}", c.seed); }},
    {"window", "LEFT,RIGHT of the window masks, or one number; repeat it for more", "", true, false,
     [](Case& c, std::string_view text) { c.window = parse_window(text); },
     [](const Case& c) { return c.window ? format(*c.window) : ""; }},
    {"prefix", "prefix length of the prefix_lm masks, instead of a drawn one", "", false, false,
     [](Case& c, std::string_view text) { c.prefix = parse_count(text, 0, kMaxTokens); },
     [](const Case& c) { return format(c.prefix); }},
    {"block", "block size of the block masks", "", false, false,
     [](Case& c, std::string_view text) { c.block = parse_count(text, 1, kMaxTokens); },
     [](const Case& c) { return format(c.block); }},
    {"block_min", "smallest block of variable_block_sparse", "", false, false,
     [](Case& c, std::string_view text) { c.block_min = parse_count(text, 1, kMaxTokens); },
     [](const Case& c) { return format(c.block_min); }},
    {"density", "kept share of the block-sparse masks: 0.1", "", false, false,
     [](Case& c, std::string_view text) { c.density = parse_real(text, 0, 1); },
     [](const Case& c) { return c.density ? fmt::format("{}", *c.density) : ""; }},
    {"deterministic", "whether the same bits on every run are demanded: true, false; without it they are not",
     "", false, false, [](Case& c, std::string_view text) { c.deterministic = parse_bool(text); },
     [](const Case& c) { return std::string(c.deterministic ? "true" : ""); }},
    parallel_axis<kStrategy>("context-parallel strategies by name; 'all': all of them"),
    parallel_axis<kRanks>("ranks that the strategy spreads the case over"),
    parallel_axis<kTopology>("NODESxDEVICES, such as 2x8: where the ranks are, instead of one node"),
    parallel_axis<kUlysses>(
        "Ulysses degree of usp and loongtrain, instead of the largest that divides the KV heads"),
    parallel_axis<kInnerRing>("inner ring of loongtrain"),
    parallel_axis<kPlacement>(
        "head-first or context-first: which axis of usp and loongtrain stays in a node"),
    parallel_axis<kSharding>("how tokens are dealt: auto, contiguous, zigzag, per-document"),
    parallel_axis<kSkip>("whether keys that no row sees stay where they are: yes, no"),
    parallel_axis<kTransport>("what carries data between ranks: threads, nccl, mpi"),
};

// Results hold no absolute paths.
std::string relative(const std::string& path) {
  return std::filesystem::path(path).is_absolute() ? std::filesystem::proximate(path).string() : path;
}

std::string hash_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  LONGSPAN_CHECK_INPUT(file.good(), "file '{}' cannot be read", path);
  const std::string content{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return hex16(hash64(content));
}

// The value of a key that must be there and of that type.
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
  LONGSPAN_CHECK_INPUT(fits, "the case's key '{}' has a value of another kind than expected", key);
  return it->get<T>();
}

}  // namespace

PatternOptions Case::pattern_options(int64_t index) const {
  PatternOptions options;
  options.seqlen = seqlen;
  options.seed = seed;
  options.index = index;
  if (!lengths.empty()) options.lengths = lengths;
  if (window) {
    options.window_left = window->left;
    options.window_right = window->right;
  }
  options.prefix = prefix;
  options.block = block;
  options.block_min = block_min;
  if (density) options.density = *density;
  options.kv_heads = heads_kv;
  return options;
}

nlohmann::json to_json(const Case& c) {
  nlohmann::json options = nlohmann::json::object();
  if (c.window)
    options["window"] = {c.window->left,
                         c.window->right ? nlohmann::json(*c.window->right) : nlohmann::json()};
  if (c.prefix) options["prefix"] = *c.prefix;
  if (c.block) options["block"] = *c.block;
  if (c.block_min) options["block_min"] = *c.block_min;
  if (c.density) options["density"] = *c.density;
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
  if (c.deterministic) json["deterministic"] = true;
  add_to_json(c.parallelism, json);
  return json;
}

Case case_from_json(const nlohmann::json& json) {
  LONGSPAN_CHECK_INPUT(json.is_object(), "the case is no object");
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
  if (const auto it = json.find("deterministic"); it != json.end()) {
    LONGSPAN_CHECK_INPUT(it->is_boolean(), "the case's key 'deterministic' is neither true nor false");
    c.deterministic = it->get<bool>();
  }
  c.parallelism = parallelism_from_json(json);
  const auto options = json.find("options");
  if (options == json.end()) return c;
  LONGSPAN_CHECK_INPUT(options->is_object(), "the case's options are no object");
  if (const auto it = options->find("window"); it != options->end()) {
    LONGSPAN_CHECK_INPUT(
        it->is_array() && it->size() == 2 && (*it)[0].is_number_integer() && (*it)[1].is_number_integer(),
        "the case's option 'window' is no pair of numbers");
    c.window = Window{(*it)[0].get<int64_t>(), std::nullopt};
    if (!(*it)[1].is_null()) c.window->right = (*it)[1].get<int64_t>();
  }
  if (options->contains("prefix")) c.prefix = required<int64_t>(*options, "prefix");
  if (options->contains("block")) c.block = required<int64_t>(*options, "block");
  if (options->contains("block_min")) c.block_min = required<int64_t>(*options, "block_min");
  if (options->contains("density")) c.density = required<double>(*options, "density");
  if (options->contains("file_hash")) c.file_hash = required<std::string>(*options, "file_hash");
  return c;
}

std::string id_of(const Case& c) {
  return hex16(hash64(to_json(c).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
}

Case normalised(Case c) {
  c.parallelism = normalised(c.parallelism, c.heads_q, c.heads_kv);
  if (c.mask_is_file()) {
    c.mask = relative(c.mask);
    c.file_hash = hash_of_file(c.mask);
    c.seqlen = read_masks(c.mask).front().rows();
    c.masks = 1;
    c.lengths.clear();
    c.window.reset();
    c.prefix.reset();
    c.block.reset();
    c.block_min.reset();
    c.density.reset();
    return c;
  }
  const Pattern& pattern = pattern_from_name(c.mask);
  c.file_hash.clear();
  if (!pattern.documents) c.lengths.clear();
  if (!c.lengths.empty()) {
    const LengthSource source = LengthSource::from_name(c.lengths, c.seqlen);
    if (c.lengths == "auto") c.lengths = source.name();
    if (std::filesystem::exists(c.lengths)) {
      c.lengths = relative(c.lengths);
      c.file_hash = hash_of_file(c.lengths);
    }
  }
  if (!reads(pattern, "window")) c.window.reset();
  if (c.window && !c.window->right)
    c.window->right = pattern.name == "sliding_window_causal" ? 0 : c.window->left;
  if (!reads(pattern, "prefix")) c.prefix.reset();
  if (!reads(pattern, "block")) c.block.reset();
  if (!reads(pattern, "block_min")) c.block_min.reset();
  if (!pattern.block_sparse) c.density.reset();
  if (c.masks > 1 && !draws_anything(pattern, c.pattern_options(0))) c.masks = 1;
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
                     format_count(c.seqlen), c.heads_q, c.heads_kv, c.head_dim, name_of(c.dtype),
                     name_of(c.direction), spread);
}

Direction direction_from_name(std::string_view name) {
  if (name == "forward" || name == "fwd") return Direction::kForward;
  LONGSPAN_CHECK_INPUT(name == "backward" || name == "bwd",
                       "'{}': must be forward (or fwd) or backward (or bwd)", name);
  return Direction::kBackward;
}

std::vector<std::string> arguments_of(const Case& c) {
  std::vector<std::string> arguments{"run"};
  for (const Axis& axis : axes()) {
    const std::string value = axis.get(c);
    if (value.empty()) continue;
    std::string option = "--" + std::string(axis.name);
    for (char& letter : option) letter = letter == '_' ? '-' : letter;
    arguments.push_back(std::move(option));
    arguments.push_back(axis.name == "seqlen" ? format_count(c.seqlen) : value);
  }
  return arguments;
}

std::span<const Axis> axes() {
  return kAxes;
}

const Axis* find_axis(std::string_view name) {
  for (const Axis& axis : kAxes) {
    if (axis.name == name) return &axis;
  }
  return nullptr;
}

}  // namespace longspan::bench
