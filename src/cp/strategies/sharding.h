// Dealing the tokens of a sequence to ranks: any length, any documents, no padding.
#pragma once

#include <vector>

#include "cp/strategies/strategy.h"

namespace longspan {

// The tokens of each of `parts` parts. Parts differ by a few tokens at most. Some are empty if there are
// fewer tokens than parts.
std::vector<Ranges> shard(const Problem& problem, int parts, Sharding sharding);

// Throws an input error unless the ranks' tokens are a partition of [0, tokens).
void check_owned(std::span<const Ranges> owned, int64_t tokens, int ranks);

// The number of visible pairs before each row, mean over the masks: tokens_q + 1 numbers.
std::vector<double> area_until(const Problem& problem);

// The blocks of the masks' common block diagonal: consecutive token ranges with no visible pair between two
// of them. For a document mask these are the documents.
Ranges diagonal_blocks(const Problem& problem);

// The set of keys that any row of `rows` sees in any KV head of `heads`.
Ranges needed_keys(const Problem& problem, const Ranges& rows, Range heads);

}  // namespace longspan
