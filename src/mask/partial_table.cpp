// The distinct partial tiles: drawing them as spans of rows, and finding equal ones.
#include "mask/partial_table.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"

namespace longspan {
namespace {

// Mixes 8 bytes at a time; both users compare what they find.
uint64_t hash_of(const void* data, size_t bytes) {
  uint64_t hash = 0x9e3779b97f4a7c15u ^ bytes;
  const char* at = static_cast<const char*>(data);
  for (size_t done = 0; done < bytes; done += 8) {
    uint64_t word = 0;
    std::memcpy(&word, at + done, std::min<size_t>(8, bytes - done));
    hash = (std::rotl(hash, 23) ^ word) * 0xff51afd7ed558ccdu;
  }
  return hash ^ (hash >> 32);
}

size_t layers_per_chunk(TileShape shape) {
  return std::max<size_t>(1, (size_t{1} << 18) / static_cast<size_t>(shape.rows));
}

}  // namespace

Span TilePiece::columns(int32_t row) const {
  const int32_t begin = lo == kNoLo ? k_begin : std::max<int32_t>(k_begin, row + lo);
  const int32_t end = hi == kNoHi ? k_end : std::min<int32_t>(k_end, row + hi + 1);
  return {static_cast<uint16_t>(begin), static_cast<uint16_t>(end)};
}

PartialTable::PartialTable(TileShape shape, size_t bands)
    : shape_(shape),
      memo_(std::bit_ceil(std::clamp<size_t>(bands, 16, size_t{1} << 16))),
      spans_(layers_per_chunk(shape) * static_cast<size_t>(shape.rows)) {}

int32_t PartialTable::number_of(std::span<const TilePiece> pieces, int64_t area) {
  if (pieces.size() > kMemoPieces) {
    draw(pieces);
    return number_of_drawn(area);
  }
  Memo& memo = memo_[hash_of(pieces.data(), pieces.size_bytes()) & (memo_.size() - 1)];
  if (memo.count == static_cast<int32_t>(pieces.size()) &&
      std::equal(pieces.begin(), pieces.end(), memo.pieces))
    return memo.number;
  draw(pieces);
  memo.count = static_cast<int32_t>(pieces.size());
  std::copy(pieces.begin(), pieces.end(), memo.pieces);
  memo.number = number_of_drawn(area);
  return memo.number;
}

// Each row's intervals from left to right, those that touch joined, one to a layer: equal tiles are drawn
// equally, however they were cut into pieces.
void PartialTable::draw(std::span<const TilePiece> pieces) {
  const auto rows = static_cast<size_t>(shape_.rows);
  drawn_.assign(rows, Span{});
  std::vector<Span> of_row;
  for (size_t row = 0; row < rows; ++row) {
    of_row.clear();
    for (const TilePiece& piece : pieces)
      if (piece.q_begin <= row && row < piece.q_end)
        of_row.push_back(piece.columns(static_cast<int32_t>(row)));
    if (of_row.size() > 1)
      std::sort(of_row.begin(), of_row.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
    size_t layer = 0;
    for (size_t i = 0; i < of_row.size(); ++layer) {
      Span joined = of_row[i];
      for (++i; i < of_row.size() && of_row[i].begin == joined.end; ++i) joined.end = of_row[i].end;
      if (drawn_.size() <= layer * rows) drawn_.resize((layer + 1) * rows);
      drawn_[layer * rows + row] = joined;
    }
  }
}

bool PartialTable::drawn_equals(const Partial& partial) {
  const auto rows = static_cast<size_t>(shape_.rows);
  if (drawn_.size() != static_cast<size_t>(partial.layers) * rows) return false;
  for (int32_t layer = 0; layer < partial.layers; ++layer) {
    const Span* stored = &spans_[static_cast<size_t>(partial.first + layer) * rows];
    if (!std::equal(stored, stored + rows, drawn_.begin() + static_cast<std::ptrdiff_t>(layer * rows)))
      return false;
  }
  return true;
}

int32_t PartialTable::number_of_drawn(int64_t area) {
  const uint64_t hash = hash_of(drawn_.data(), drawn_.size() * sizeof(Span));
  for (auto [at, end] = numbers_.equal_range(hash); at != end; ++at)
    if (drawn_equals(partials_[at->second])) return at->second;
  const auto rows = static_cast<size_t>(shape_.rows);
  const size_t first = spans_.size() / rows, layers = drawn_.size() / rows;
  LONGSPAN_CHECK(first + layers <= static_cast<size_t>(std::numeric_limits<int32_t>::max()),
                 "a tile map of {} layers", first + layers);
  for (size_t layer = 0; layer < layers; ++layer)
    std::copy_n(drawn_.begin() + static_cast<std::ptrdiff_t>(layer * rows), rows, spans_.append(rows));
  const auto number = static_cast<int32_t>(partials_.size());
  partials_.push_back({static_cast<int32_t>(first), static_cast<int32_t>(layers), area});
  numbers_.emplace(hash, number);
  return number;
}

}  // namespace longspan
