// The mask patterns: functions from (sequence length, parameters, seeded generator) to masks, in one table.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mask/mask.h"
#include "mask/patterns/document_lengths.h"

namespace longspan {

// What a user may set; a pattern reads those that concern it and draws what is left open from the generator.
struct PatternOptions {
  int64_t seqlen = 0;  // S, at least 1
  uint64_t seed = 42;
  int64_t index = 0;  // mask number in the stream of the seed: masks 0 .. index - 1 are drawn first
  std::string lengths = "auto";                      // document lengths: see LengthSource
  std::optional<int64_t> window_left, window_right;  // 1024; global_sliding_window: drawn, left alone
  std::optional<int64_t> prefix;                     // P of prefix_lm_*
  std::optional<int64_t>
      block;  // B: 64, block_causal_document 1024; the mean A of variable_block_sparse: 256
  std::optional<int64_t> block_min;  // M of variable_block_sparse: 128
  double density = 0.5;              // kept share of block-sparse masks
  int64_t kv_heads = 1;              // masks drawn for patterns that differ by KV head
};

// A drawn mask and everything that was drawn to make it.
struct DrawnMask {
  std::string pattern;
  PatternOptions options;
  std::string lengths;  // the source resolved: "pile"; empty where the pattern has no documents
  std::vector<int64_t> document_lengths;                // empty where the pattern has none
  std::vector<std::pair<std::string, int64_t>> params;  // "prefix", "window", ... as used
  HeadMasks masks;                                      // one, or one per KV head
  int64_t area() const;                                 // summed over masks
  double density() const;                               // area over pairs
};

struct Pattern {
  std::string_view name;
  std::string_view condition;   // "j <= i": visible iff
  std::string_view parameters;  // names of the options it reads, comma-separated; "" if none
  bool block_sparse = false;    // masks differ by KV head
  bool documents = false;       // reads document lengths
  DrawnMask (*draw)(const PatternOptions& options,
                    Mt19937& generator);  // one mask, continuing the generator's stream
};

std::span<const Pattern> patterns();
const Pattern& pattern_from_name(std::string_view name);  // throws an input error that lists the names

// The next mask of the generator's stream. To draw masks 0, 1, 2, ... of a run, call it again and again.
DrawnMask draw_mask(const Pattern& pattern, const PatternOptions& options, Mt19937& generator);

// Mask number options.index of the run that options.seed begins.
DrawnMask draw_mask(std::string_view pattern, const PatternOptions& options);

}  // namespace longspan
