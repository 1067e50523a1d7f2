// Block-sparse masks: random blocks, selected independently for each KV head and each row of blocks.
#pragma once

#include "mask/patterns/patterns.h"

namespace longspan {

inline constexpr OptionSpec kBlock{.name = "block", .help = "block size in tokens, or its mean", .least = 1};
inline constexpr OptionSpec kBlockMin{.name = "block_min", .help = "smallest block", .least = 1};
inline constexpr OptionSpec kDensity{
    .name = "density", .help = "share of blocks kept", .kind = OptionKind::kRatio, .preset = "0.5"};

DrawnMask draw_uniform_block_sparse(const PatternOptions& options, Mt19937& generator);
DrawnMask draw_variable_block_sparse(const PatternOptions& options, Mt19937& generator);

// Sets small blocks for a short sequence.
void suit_uniform_block_sparse(PatternOptions& options);
void suit_variable_block_sparse(PatternOptions& options);

}  // namespace longspan
