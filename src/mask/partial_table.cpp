// The distinct partial tiles: drawing them as spans of rows, and finding equal ones.
#include "mask/partial_table.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"

namespace longspan {
namespace {

// Mixes 8 bytes at a time. The upper bits are the better ones; both users compare what they find.
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

PartialTable::PartialTable(TileShape shape)
    : shape_(shape),
      memo_(kMemoSize * sizeof(Memo)),
      spans_(layers_per_chunk(shape) * static_cast<size_t>(shape.rows)) {}

PartialTable::Memo* PartialTable::find_memo(std::span<const TilePiece> pieces) {
  if (pieces.size() > kMemoPieces) return nullptr;
  std::array<uint64_t, kMemoPieces> key{};
  for (size_t i = 0; i < pieces.size(); ++i) {
    const TilePiece& p = pieces[i];
    if (!p.rectangular()) return nullptr;
    key[i] =
        uint64_t{p.q_begin} | uint64_t{p.q_end} << 16 | uint64_t{p.k_begin} << 32 | uint64_t{p.k_end} << 48;
  }
  const uint64_t hash = hash_of(key.data(), pieces.size() * sizeof(uint64_t));
  Memo* places = memo_.as<Memo>() + (hash >> 40) % kMemoSize / kMemoWays * kMemoWays;
  for (size_t way = 0; way < kMemoWays; ++way) {
    Memo& memo = places[way];
    if (memo.count == static_cast<int32_t>(pieces.size()) && memo.key == key) return &memo;
    if (memo.count == 0) return &(memo = {key, 0, 0});
  }
  return &(places[hash % kMemoWays] = {key, 0, 0});
}

int32_t PartialTable::number_of(std::span<const TilePiece> pieces, int64_t area) {
  Memo* memo = find_memo(pieces);
  if (memo != nullptr && memo->count > 0) return memo->number;
  draw(pieces);
  const int32_t number = number_of_drawn(area);
  if (memo != nullptr) {
    memo->count = static_cast<int32_t>(pieces.size());
    memo->number = number;
  }
  return number;
}

// Each row's intervals from left to right, those that touch joined, one to a layer: equal tiles are drawn
// equally, however they were cut into pieces.
void PartialTable::draw(std::span<const TilePiece> pieces) {
  const auto rows = static_cast<size_t>(shape_.rows);
  drawn_.assign(rows, Span{});
  cuts_.clear();
  for (const TilePiece& piece : pieces) cuts_.insert(cuts_.end(), {piece.q_begin, piece.q_end});
  std::sort(cuts_.begin(), cuts_.end());
  cuts_.erase(std::unique(cuts_.begin(), cuts_.end()), cuts_.end());
  // Between two cuts the same pieces are live, and as they are disjoint they keep their order.
  for (size_t c = 0; c + 1 < cuts_.size(); ++c) {
    const int32_t begin = cuts_[c], end = cuts_[c + 1];
    live_.clear();
    for (const TilePiece& piece : pieces)
      if (piece.q_begin <= begin && end <= piece.q_end) live_.push_back(piece);
    std::sort(live_.begin(), live_.end(), [begin](const TilePiece& a, const TilePiece& b) {
      return a.columns(begin).begin < b.columns(begin).begin;
    });
    const bool alike =
        std::all_of(live_.begin(), live_.end(), [](const TilePiece& piece) { return piece.rectangular(); });
    draw_row(begin);
    for (int32_t row = begin + 1; row < end && !alike; ++row) draw_row(row);
    for (size_t layer = 0; layer < drawn_.size() && alike; layer += rows)
      std::fill(&drawn_[layer] + begin, &drawn_[layer] + end, drawn_[layer + static_cast<size_t>(begin)]);
  }
}

void PartialTable::draw_row(int32_t row) {
  const auto rows = static_cast<size_t>(shape_.rows);
  size_t layer = 0;
  for (size_t i = 0; i < live_.size(); layer += rows) {
    Span joined = live_[i].columns(row);
    for (++i; i < live_.size() && live_[i].columns(row).begin == joined.end; ++i)
      joined.end = live_[i].columns(row).end;
    if (drawn_.size() == layer) drawn_.resize(layer + rows);
    drawn_[layer + static_cast<size_t>(row)] = joined;
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
