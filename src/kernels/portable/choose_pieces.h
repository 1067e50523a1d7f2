// How the backward kernel's tiles of keys are divided among its CTAs, by a simulation of these. Host code
// without CUDA.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/problem.h"
#include "kernels/portable/map.h"
#include "mask/lowering/tile_map.h"

namespace longspan::portable {

// Pieces of a tile of keys: its parts in `segments` of the rows or, if there is one, those with which the
// last of `ctas` is done first, as far as the room for them allows, which depends on sizes only. `maps` are
// transposed.
Pieces choose_pieces(const Problem& problem, const std::vector<TileMap>& maps, int32_t segments,
                     int64_t ctas);

// KV heads that are worked on together: few, so that L2 holds more of their rows, but two rounds of CTAs, and
// done as soon as all would be. Rows of a segment stay in L2 if heads come one after another; additions in
// turns stall least with all.
int32_t choose_backward_section(const Problem& problem, const Pieces& pieces,
                                const std::vector<TileMap>& maps, int64_t ctas);

}  // namespace longspan::portable
