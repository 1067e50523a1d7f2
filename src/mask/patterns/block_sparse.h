// Block-sparse masks: random blocks, selected apart for each KV head and each row of blocks.
#pragma once

#include "mask/patterns/patterns.h"

namespace longspan {

DrawnMask draw_uniform_block_sparse(const PatternOptions& options, Mt19937& generator);
DrawnMask draw_variable_block_sparse(const PatternOptions& options, Mt19937& generator);

}  // namespace longspan
