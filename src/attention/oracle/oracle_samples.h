// Which rows and keys the oracle looks at: the hard places of a mask first, random ones after.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/problem.h"

namespace longspan {

struct SampleOptions {
  int64_t per_head = 24;  // rows of each query head; keys of each KV head
  bool all = false;       // every row and key instead
  uint64_t seed = 0;
};

struct Samples {
  std::vector<std::vector<int64_t>> rows;  // [heads_q], ascending
  std::vector<std::vector<int64_t>> keys;  // [heads_kv], ascending; empty lists where gradients are not asked
  int64_t row_count() const;
  int64_t key_count() const;
};

// Hard places, of each head: the first and the last row, the rows at both sides of a tile border and at the
// cut last tile, the rows with the most and the fewest keys and one with none, the first and last rows of
// bands (document borders, window ends); the same for keys. What is left is filled with random rows, other
// ones for each head. A function of the arguments alone.
Samples choose_samples(const Problem& problem, Direction direction, const SampleOptions& options);

}  // namespace longspan
