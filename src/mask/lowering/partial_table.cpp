// The distinct partial tiles: drawing them as row spans, and finding equal ones.
#include "mask/lowering/partial_table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "mask/mask.h"

namespace longspan {
namespace {

constexpr uint64_t kOdd = 0xff51afd7ed558ccdu;

uint64_t mixed(uint64_t hash, uint64_t word) {
  return (std::rotl(hash, 23) ^ word) * kOdd;
}

// Mixes 32 bytes at a time in four independent chains. The upper bits are better mixed; callers compare
// contents on a match.
uint64_t hash_of(std::span<const Span> spans) {
  std::array<uint64_t, 4> chains{0x9e3779b97f4a7c15u, 1, 2, 3};
  std::array<uint64_t, 4> words;
  size_t done = 0;
  for (; done + 8 <= spans.size(); done += 8) {
    std::memcpy(words.data(), spans.data() + done, sizeof(words));
    for (size_t i = 0; i < words.size(); ++i) chains[i] = mixed(chains[i], words[i]);
  }
  words = {};
  std::memcpy(words.data(), spans.data() + done, (spans.size() - done) * sizeof(Span));
  uint64_t hash = spans.size();
  for (size_t i = 0; i < words.size(); ++i) hash = mixed(hash, mixed(chains[i], words[i]));
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

int64_t TilePiece::bounded_area() const {
  return Band{{q_begin, q_end},
              {k_begin, k_end},
              lo == kNoLo ? kUnboundedBelow : lo,
              hi == kNoHi ? kUnboundedAbove : hi}
      .area();
}

void PartialTable::begin(TileShape shape) {
  shape_ = shape;
  memos_.assign(kFewestMemos, Memo{});
  kept_ = 0;
  spans_.begin(layers_per_chunk(shape) * static_cast<size_t>(shape.rows));
  spans_.reserve(size_t{64} * static_cast<size_t>(shape.rows));
  partials_.clear(), hashes_.clear(), next_.clear();
  first_.assign(256, -1);
}

void PartialTable::take(TileMap& map) {
  map.partials = partials_;
  map.spans = take_spans();
}

std::vector<Span> PartialTable::take_spans() {
  std::vector<Span> spans = spans_.take_keeping_memory();
  constexpr size_t kMostKept = size_t{1} << 20;  // bytes
  if (memos_.size() * sizeof(Memo) > kMostKept) *this = PartialTable();
  return spans;
}

PartialTable::Memo PartialTable::memo_of(std::span<const TilePiece> pieces) {
  Memo memo;
  size_t words = 0;
  int32_t bounded = 0;
  if (pieces.size() > kMemoWords) return memo;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const TilePiece& p = pieces[i];
    const bool has_bounds = !p.rectangular();
    if (words + (has_bounds ? 2 : 1) > kMemoWords) return memo;
    memo.key[words++] =
        uint64_t{p.q_begin} | uint64_t{p.q_end} << 16 | uint64_t{p.k_begin} << 32 | uint64_t{p.k_end} << 48;
    if (!has_bounds) continue;
    memo.key[words++] = uint64_t{static_cast<uint32_t>(p.lo)} | uint64_t{static_cast<uint32_t>(p.hi)} << 32;
    bounded |= 1 << i;
  }
  memo.kind = static_cast<int32_t>(pieces.size()) | bounded << 8;
  return memo;
}

PartialTable::Memo& PartialTable::place_of(const Memo& memo) {
  // The four products are independent, so they take little longer than one.
  uint64_t hash = memo.key[0] * 0x9e3779b97f4a7c15u + memo.key[1] * 0xc2b2ae3d27d4eb4fu +
                  memo.key[2] * 0x165667b19e3779f9u + memo.key[3] * 0xd6e8feb86659fd93u;
  hash = (hash ^ hash >> 32) * kOdd;
  Memo* places = &memos_[(hash >> 32) * kMemoWays & (memos_.size() - 1)];
  for (size_t way = 0; way < kMemoWays; ++way)
    if (places[way].kind == 0 || places[way].shows(memo)) return places[way];
  return places[(hash >> 60) % kMemoWays];
}

void PartialTable::grow_memos() {
  fewer_memos_.assign(2 * memos_.size(), Memo{});
  memos_.swap(fewer_memos_);
  for (const Memo& memo : fewer_memos_)
    if (memo.kind != 0) place_of(memo) = memo;
}

int32_t PartialTable::number_of(std::span<const TilePiece> pieces) {
  Memo memo = memo_of(pieces);
  if (memo.kind != 0)
    if (const Memo& known = place_of(memo); known.shows(memo)) return known.number;
  draw(pieces);
  int64_t area = 0;
  for (const TilePiece& piece : pieces) area += piece.area();
  const int32_t number = number_of_drawn(area);
  if (memo.kind != 0) {
    memo.number = number;
    if (++kept_ * 2 > memos_.size() && memos_.size() < kMostMemos) grow_memos();
    place_of(memo) = memo;
  }
  return number;
}

// Each row's intervals from left to right, with touching ones joined, one per layer. Equal tiles get equal
// spans however bands divide them.
void PartialTable::draw(std::span<const TilePiece> pieces) {
  const auto rows = static_cast<size_t>(shape_.rows);
  drawn_.assign(rows, Span{});
  if (pieces.size() == 1) return draw(pieces.front(), pieces.front().q_begin, pieces.front().q_end);
  cuts_.clear();
  for (const TilePiece& piece : pieces) cuts_.insert(cuts_.end(), {piece.q_begin, piece.q_end});
  std::sort(cuts_.begin(), cuts_.end());
  cuts_.erase(std::unique(cuts_.begin(), cuts_.end()), cuts_.end());
  // The live pieces do not change between two cuts. They are disjoint, so their order is fixed.
  for (size_t c = 0; c + 1 < cuts_.size(); ++c) {
    const int32_t begin = cuts_[c], end = cuts_[c + 1];
    live_.clear();
    for (const TilePiece& piece : pieces)
      if (piece.q_begin <= begin && end <= piece.q_end) live_.push_back(piece);
    if (live_.size() == 1) {
      draw(live_.front(), begin, end);
      continue;
    }
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

// Draws rows [begin, end) of one piece into the first layer.
void PartialTable::draw(const TilePiece& piece, int32_t begin, int32_t end) {
  if (piece.rectangular())
    return std::fill(drawn_.data() + begin, drawn_.data() + end, Span{piece.k_begin, piece.k_end});
  // Stand-ins for absent bounds, small enough to add to.
  constexpr int32_t kFar = 1 << 30;
  const int32_t lo = std::max(piece.lo, -kFar), hi = std::min(piece.hi, kFar);
  const int32_t k_begin = piece.k_begin, k_end = piece.k_end;
  for (int32_t row = begin; row < end; ++row)
    drawn_[static_cast<size_t>(row)] = {static_cast<uint16_t>(std::max(k_begin, row + lo)),
                                        static_cast<uint16_t>(std::min(k_end, row + hi + 1))};
}

void PartialTable::draw_row(int32_t row) {
  const auto rows = static_cast<size_t>(shape_.rows);
  size_t layer = 0;
  for (size_t i = 0; i < live_.size(); layer += rows) {
    Span joined = live_[i].columns(row);
    for (++i; i < live_.size(); ++i) {
      const Span next = live_[i].columns(row);
      if (next.begin != joined.end) break;
      joined.end = next.end;
    }
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
  const uint64_t hash = hash_of(drawn_);
  for (int32_t at = first_[hash & (first_.size() - 1)]; at >= 0; at = next_[static_cast<size_t>(at)])
    if (hashes_[static_cast<size_t>(at)] == hash && drawn_equals(partials_[static_cast<size_t>(at)]))
      return at;
  const auto rows = static_cast<size_t>(shape_.rows);
  const size_t first = spans_.size() / rows, layers = drawn_.size() / rows;
  LONGSPAN_CHECK(first + layers <= static_cast<size_t>(std::numeric_limits<int32_t>::max()),
                 "a tile map of {} layers", first + layers);
  for (size_t layer = 0; layer < layers; ++layer)
    std::copy_n(drawn_.begin() + static_cast<std::ptrdiff_t>(layer * rows), rows, spans_.append(rows));
  const auto number = static_cast<int32_t>(partials_.size());
  partials_.push_back({static_cast<int32_t>(first), static_cast<int32_t>(layers), area});
  hashes_.push_back(hash);
  next_.push_back(-1);
  if (partials_.size() > first_.size()) {
    first_.assign(4 * first_.size(), -1);
    for (size_t i = 0; i < partials_.size(); ++i) list(static_cast<int32_t>(i));
  } else {
    list(number);
  }
  return number;
}

// Inserts a partial tile at the head of its hash's list.
void PartialTable::list(int32_t number) {
  int32_t& first = first_[hashes_[static_cast<size_t>(number)] & (first_.size() - 1)];
  next_[static_cast<size_t>(number)] = std::exchange(first, number);
}

}  // namespace longspan
