// The mask patterns: functions from (sequence length, parameters, seeded generator) to masks, in one table.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/options.h"
#include "mask/mask.h"
#include "mask/patterns/document_lengths.h"

namespace longspan {

// Everything that determines a drawn mask, besides the pattern.
struct PatternOptions {
  int64_t seqlen = 0;  // S, at least 1
  uint64_t seed = 42;
  int64_t index = 0;  // mask number in the stream of the seed: masks 0 .. index - 1 are drawn first
  std::string lengths = "auto";  // document lengths: see LengthSource
  int64_t kv_heads = 1;          // masks to draw if the pattern differs by KV head
  OptionValues values;           // the patterns' own options; a pattern reads those in its table row
};

// A drawn mask and the random values drawn for it.
struct DrawnMask {
  std::string pattern;
  PatternOptions options;
  std::string lengths;  // the source, resolved: "pile"; empty if the pattern has no documents
  std::vector<int64_t> document_lengths;                    // empty if the pattern has none
  std::vector<std::pair<std::string, OptionValue>> params;  // "prefix", "window", ... as used
  HeadMasks masks;                                          // one, or one per KV head
  int64_t area() const;                                     // summed over masks
  double density() const;                                   // area over pairs
};

struct Pattern {
  std::string_view name;
  std::string_view condition;       // when a pair is visible: "j <= i"
  std::vector<OptionSpec> options;  // its own options
  bool block_sparse = false;        // masks differ by KV head; reads kv_heads
  bool documents = false;           // reads document lengths
  // Draws one mask, continuing the generator's stream. Its own options have been checked and their presets
  // filled in.
  DrawnMask (*draw)(const PatternOptions& options, Mt19937& generator) = nullptr;
  // Completes values that were given in part. May be null.
  void (*complete)(OptionValues& values) = nullptr;
  // Sets unset options to values that give a varied mask of options.seqlen tokens, if the presets only suit
  // longer sequences. For tests; may be null.
  void (*suit_length)(PatternOptions& options) = nullptr;

  std::string parameters() const;  // the names of all options that it reads, comma-separated; "" if none
};

inline constexpr std::string_view kPlainestPattern = "causal";  // supported by most kernels

std::span<const Pattern> patterns();
std::span<const TableOption> pattern_options();           // the patterns' own options, without duplicates
const Pattern& pattern_from_name(std::string_view name);  // throws an input error that lists the names

// Draws the next mask of the generator's stream. Repeated calls draw masks 0, 1, 2, ...
DrawnMask draw_mask(const Pattern& pattern, const PatternOptions& options, Mt19937& generator);

// Mask number options.index of the stream of options.seed.
DrawnMask draw_mask(std::string_view pattern, const PatternOptions& options);

}  // namespace longspan
