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
  int64_t head_dim_v = 0;  // of v and o; 0: head_dim
  DType dtype = DType::kF32;
  Direction direction = Direction::kForward;
  int64_t masks = 1;    // number of masks drawn and averaged
  std::string lengths;  // source of document lengths; empty if the mask has no documents
  uint64_t seed = 42;   // of the masks and of the inputs

  OptionValues options;        // mask options that were set; the others have the pattern's presets
  bool deterministic = false;  // require bitwise-identical results on every run
  bool sinks = false;          // a sink for each query head, normal at random
  double softcap = 0;          // bound of the scores; 0: none
  bool alibi = false;          // ALiBi, with its paper's slope for each query head
  Parallelism parallelism;     // empty: one device
  std::string file_hash;       // of the mask or lengths file: new contents make a new case

  bool mask_is_file() const { return is_mask_file(mask); }
  static bool is_mask_file(std::string_view mask) { return mask.ends_with(".json"); }
  PatternOptions pattern_options(int64_t index) const;  // of mask number `index`
  friend bool operator==(const Case&, const Case&) = default;
};

// Keys are sorted and unset optional keys are left out, so equal cases give equal bytes.
nlohmann::json to_json(const Case& c);
Case case_from_json(const nlohmann::json& json);  // throws an input error that names the key
std::string id_of(const Case& c);                 // 16 hexadecimal digits: a hash of to_json's bytes

// Maps cases that mean the same work to the same case: removes options that the pattern does not read,
// resolves `auto`, and sets `masks` to 1 for patterns without randomness. Throws an input error for an
// impossible case.
Case normalised(Case c);

std::string describe(const Case& c);  // "cpu-flash causal 8K, 8:2 heads of 128, f32, forward"

// The command that repeats this case alone, after the program's name: {"run", "--kernel", "cpu-flash", ...}.
std::vector<std::string> arguments_of(const Case& c);

// An axis of a case: a TOML key, a command-line option and a field of the filter. The options of patterns and
// strategies are axes as well. Values are text, as given. `set` throws an input error that begins with the
// value; the caller adds the location.
struct Axis {
  std::string_view name;  // "head_dim"; the option is --head-dim
  std::string help;
  std::string_view preset = {};  // the value if none is given; empty: unset
  std::function<void(Case& c, std::string_view text)> set;
  std::function<std::string(const Case& c)> get;  // for the filter and for commands; empty: not set
  bool required = false;
  bool comma_in_value = false;  // a value may contain a comma, so a list repeats the option
  bool numeric = false;         // values are ordered, for the filter
  bool flag = false;            // true or false; unset is false
};
std::span<const Axis> axes();
const Axis* find_axis(std::string_view name);

}  // namespace longspan::bench
