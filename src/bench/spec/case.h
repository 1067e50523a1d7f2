// A case: one kernel on one workload, as a pure value. Equal cases have equal identifiers in every run.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "attention/problem.h"
#include "bench/spec/parallelism.h"
#include "mask/patterns/patterns.h"

namespace longspan::bench {

struct Case {
  std::string kernel;
  std::string mask;  // a pattern, or the path of a mask file (*.json)
  int64_t seqlen = 0;
  int64_t heads_q = 0, heads_kv = 0;
  int64_t head_dim = 0;
  DType dtype = DType::kF32;
  Direction direction = Direction::kForward;
  int64_t masks = 1;    // how many masks are drawn and averaged
  std::string lengths;  // source of document lengths; empty where the mask has no documents
  uint64_t seed = 42;   // of the masks and of the inputs

  OptionValues options;        // of the mask: what was given instead of the pattern's presets
  bool deterministic = false;  // the same bits on every run are demanded
  Parallelism parallelism;     // nothing: one device
  std::string file_hash;       // of a mask's or lengths' file: another content is another case

  bool mask_is_file() const { return is_mask_file(mask); }
  static bool is_mask_file(std::string_view mask) { return mask.ends_with(".json"); }
  PatternOptions pattern_options(int64_t index) const;  // of mask number `index`
  friend bool operator==(const Case&, const Case&) = default;
};

// Keys sorted, nothing optional that is not set: the same bytes for equal cases.
nlohmann::json to_json(const Case& c);
Case case_from_json(const nlohmann::json& json);  // throws an input error that names the key
std::string id_of(const Case& c);                 // 16 hexadecimal digits: a hash of to_json's bytes

// Removes what does not concern the pattern, resolves `auto`, and lets a mask that nothing is drawn for be
// measured once: what is the same work becomes the same case. Throws an input error for what cannot be.
Case normalised(Case c);

std::string describe(const Case& c);  // "cpu-flash causal 8K, 8:2 heads of 128, f32, forward"

Direction direction_from_name(std::string_view name);  // forward or fwd, backward or bwd

// The command that repeats this case alone, after the program's name: {"run", "--kernel", "cpu-flash", ...}.
std::vector<std::string> arguments_of(const Case& c);

// The axes: each is a TOML key, a command-line option and a field of the filter. The options of the patterns
// and of the strategies are axes, too. A value is text, as given; `set` throws an input error that begins
// with the value, and the caller adds where it stood.
struct Axis {
  std::string_view name;  // "head_dim"; the option is --head-dim
  std::string help;
  std::string_view preset = {};  // what holds where nothing is given; empty: nothing
  std::function<void(Case& c, std::string_view text)> set;
  std::function<std::string(const Case& c)> get;  // for the filter and for commands; empty: not set
  bool required = false;
  bool comma_in_value = false;  // a value may hold a comma: lists are made by repeating the option
  bool numeric = false;         // values have an order, for the filter
};
std::span<const Axis> axes();
const Axis* find_axis(std::string_view name);

}  // namespace longspan::bench
