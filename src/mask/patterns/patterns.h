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

// What verification tries beside whole masks: parts as a rank of context parallelism attends to them.
enum class MaskPart : uint8_t { kShuffled, kLateKeys, kEarlyRows };

struct Pattern {
  std::string_view name;
  std::string_view condition;            // "j <= i": visible iff
  std::vector<OptionSpec> options = {};  // its own
  bool block_sparse = false;             // masks differ by KV head: reads kv_heads
  bool documents = false;                // reads document lengths
  // One mask, continuing the generator's stream. The values of its own options are checked, its presets
  // filled in.
  DrawnMask (*draw)(const PatternOptions& options, Mt19937& generator) = nullptr;
  // Completes values that were given in part. May be null.
  void (*complete)(OptionValues& values) = nullptr;
  // Sets unset options to values that give a varied mask of options.seqlen tokens, if the presets only suit
  // longer sequences. For tests; may be null.
  void (*suit_length)(PatternOptions& options) = nullptr;
  // The option that is the size of its blocks, if all have one size and are aligned to it: some kernels take
  // some sizes only, and lists of features ask for each.
  std::string_view block_size = {};
  std::vector<MaskPart> parts = {};  // that a verification sweep tries by default

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
