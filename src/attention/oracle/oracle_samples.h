// The rows and keys that the oracle samples: hard places of the mask first, then random ones.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/problem.h"

namespace longspan {

struct SampleOptions {
  int64_t per_head = 24;  // rows per query head; keys per KV head
  bool all = false;       // sample every row and key
  uint64_t seed = 0;
};

struct Samples {
  std::vector<std::vector<int64_t>> rows;  // [heads_q], ascending
  std::vector<std::vector<int64_t>> keys;  // [heads_kv], ascending; empty lists if no gradients are requested
  int64_t row_count() const;
  int64_t key_count() const;
};

// Samples the hard places of each head: the first and last row, the rows on both sides of a tile border and
// at the cut last tile, the rows with the most and fewest keys and one with none, and the first and last rows
// of bands (document borders, window ends). Keys are sampled likewise. Random rows fill the rest, different
// ones for each head. The result depends only on the arguments.
Samples choose_samples(const Problem& problem, Direction direction, const SampleOptions& options);

}  // namespace longspan
