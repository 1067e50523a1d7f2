#include "kernels/sm90/forward/planner/layers.h"

#include <bit>

namespace longspan::sm90 {
namespace {

// The steps whose columns all lie in [begin, end), one bit each.
uint32_t steps_within(int32_t begin, int32_t end) {
  const int32_t from = (begin + kStepKeys - 1) / kStepKeys, to = end / kStepKeys;
  return from < to ? ((1u << to) - 1) & ~((1u << from) - 1) : 0;
}

}  // namespace

Layers LayerTable::draw(const Lone& lone, int32_t rows) {
  const size_t first = spans_.size();
  spans_.resize(first + static_cast<size_t>(shape_.rows), 0);
  const int32_t q_begin = lone.side(0), q_end = lone.side(1), k_begin = lone.side(2), k_end = lone.side(3),
                lo = lone.lo(), hi = lone.hi();
  uint32_t* const spans = spans_.data() + first;
  for (int32_t row = q_begin; row < q_end; ++row) {
    const int32_t begin = std::max(k_begin, row + lo), end = std::min(k_end, row + hi + 1);
    spans[row] = begin < end ? static_cast<uint32_t>(begin) | static_cast<uint32_t>(end) << 16 : 0;
  }
  // Both ends move to the right from row to row. So the last row ends last, and all rows see what the first
  // and the last row see.
  const bool all = q_begin == 0 && q_end == rows;
  const uint32_t clean =
      all ? steps_within(std::max({k_begin, q_end - 1 + lo, 0}), std::max(std::min(k_end, hi + 1), 0)) : 0;
  return described(first, 1, std::min(k_end, q_end + hi), clean);
}

// Each row's spans from left to right, adjacent ones joined, one a layer.
Layers LayerTable::draw(const std::vector<const ClippedBand*>& bands, int64_t column, int32_t rows) {
  const auto height = static_cast<size_t>(shape_.rows);
  drawn_.assign(height, 0);
  for (int32_t row = 0; row < rows; ++row) {
    seen_.clear();
    for (const ClippedBand* band : bands) {
      if (row < band->q_begin || row >= band->q_end) continue;
      const int64_t begin = std::max<int64_t>(band->begin_of(row) - column, 0),
                    end = std::min<int64_t>(band->end_of(row) - column, shape_.columns);
      if (begin < end) seen_.emplace_back(static_cast<uint32_t>(begin), static_cast<uint32_t>(end));
    }
    std::sort(seen_.begin(), seen_.end());
    size_t layer = 0;
    for (size_t i = 0; i < seen_.size(); layer += height) {
      auto [begin, end] = seen_[i];
      for (++i; i < seen_.size() && seen_[i].first == end; ++i) end = seen_[i].second;
      if (drawn_.size() == layer) drawn_.resize(layer + height, 0);
      drawn_[layer + static_cast<size_t>(row)] = begin | end << 16;
    }
  }
  uint64_t hash = 0x9e3779b97f4a7c15u;
  for (const uint32_t span : drawn_) hash = (std::rotl(hash, 23) ^ span) * 0xff51afd7ed558ccdu;
  for (auto [at, end] = drawings_.equal_range(hash); at != end; ++at) {
    const Layers& layers = at->second;
    if (static_cast<size_t>(layers.count) * height == drawn_.size() &&
        std::equal(drawn_.begin(), drawn_.end(), spans_.begin() + layers.first * int64_t{shape_.rows}))
      return layers;
  }
  const size_t first = spans_.size();
  spans_.insert(spans_.end(), drawn_.begin(), drawn_.end());
  return drawings_.emplace(hash, described(first, static_cast<int32_t>(drawn_.size() / height), rows))
      ->second;
}

// The same for rectangles. All rows between two edges see the same, so the tile is sketched first: for each
// such run of rows a word with its end and its number of spans, then the spans.
Layers LayerTable::draw_rectangles(const std::vector<const ClippedBand*>& bands, int64_t column,
                                   int32_t rows) {
  edges_.assign({0, rows});
  for (const ClippedBand* band : bands) {
    edges_.push_back(band->q_begin);
    edges_.push_back(band->q_end);
  }
  std::sort(edges_.begin(), edges_.end());
  edges_.erase(std::unique(edges_.begin(), edges_.end()), edges_.end());
  sketch_.clear();
  size_t before = 0, layers = 1;
  for (size_t i = 0; i + 1 < edges_.size(); ++i) {
    const size_t head = sketch_.size();
    sketch_.push_back(0);
    for (const ClippedBand* band : bands) {
      if (edges_[i] < band->q_begin || edges_[i] >= band->q_end) continue;
      const auto begin = static_cast<uint32_t>(std::max<int64_t>(band->begin - column, 0)),
                 end = static_cast<uint32_t>(std::min<int64_t>(band->end - column, shape_.columns));
      if (sketch_.size() > head + 1 && sketch_.back() >> 16 == begin)
        sketch_.back() = (sketch_.back() & 0xffff) | end << 16;
      else
        sketch_.push_back(begin | end << 16);
    }
    const size_t count = sketch_.size() - head - 1;
    const auto at = [&](size_t word) { return sketch_.begin() + static_cast<std::ptrdiff_t>(word); };
    layers = std::max(layers, count);
    if (head > 0 && std::equal(at(before) + 1, at(head), at(head) + 1, sketch_.end())) {
      sketch_.resize(head);
    } else {
      before = head;
    }
    sketch_[before] = static_cast<uint32_t>(edges_[i + 1]) | static_cast<uint32_t>(count) << 16;
  }

  uint64_t hash = 0x9e3779b97f4a7c15u;
  for (const uint32_t word : sketch_) hash = (std::rotl(hash, 23) ^ word) * 0xff51afd7ed558ccdu;
  for (auto [at, end] = sketches_.equal_range(hash); at != end; ++at)
    if (std::equal(sketch_.begin(), sketch_.end(), at->second.first.begin(), at->second.first.end()))
      return at->second.second;
  const auto height = static_cast<size_t>(shape_.rows);
  const size_t first = spans_.size();
  spans_.resize(first + layers * height, 0);
  size_t row = first;
  for (size_t i = 0; i < sketch_.size();) {
    const size_t end = first + (sketch_[i] & 0xffff), count = sketch_[i] >> 16;
    for (size_t layer = 0; layer < count; ++layer)
      std::fill(spans_.begin() + static_cast<std::ptrdiff_t>(row + layer * height),
                spans_.begin() + static_cast<std::ptrdiff_t>(end + layer * height), sketch_[i + 1 + layer]);
    row = end;
    i += 1 + count;
  }
  const Layers drawn = described(first, static_cast<int32_t>(layers), rows);
  sketches_.emplace(hash, std::pair(sketch_, drawn));
  return drawn;
}

// Rows past the end of the mask see nothing. They are left out, so that they do not make steps cut.
Layers LayerTable::described(size_t first, int32_t count, int32_t rows) const {
  const auto height = static_cast<size_t>(shape_.rows);
  int32_t last = 0;
  uint32_t clean = ~0u;
  for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
    if (row > 0 && alike(first + row, static_cast<size_t>(count))) continue;
    uint32_t whole = 0;
    for (size_t layer = 0; layer < static_cast<size_t>(count); ++layer) {
      const uint32_t span = spans_[first + layer * height + row];
      const auto begin = static_cast<int32_t>(span & 0xffff), end = static_cast<int32_t>(span >> 16);
      last = std::max(last, end);
      whole |= steps_within(begin, end);
    }
    clean &= whole;
  }
  return described(first, count, last, clean);
}

// `last`: the end of the columns that any row sees; `clean`: the steps that every row sees in full.
Layers LayerTable::described(size_t first, int32_t count, int32_t last, uint32_t clean) const {
  const auto steps = static_cast<int>((last + kStepKeys - 1) / kStepKeys);
  const uint32_t cut = ~clean & 0xffff;
  const int all = shape_.columns / kStepKeys;
  return {static_cast<int32_t>(first / static_cast<size_t>(shape_.rows)), count,
          TileCut(steps, cut, count).bits, steps == all && (cut & ((1u << all) - 1)) == 0};
}

// Whether the row at this span sees what the row before it sees.
bool LayerTable::alike(size_t span, size_t count) const {
  for (; count > 0; --count, span += static_cast<size_t>(shape_.rows))
    if (spans_[span] != spans_[span - 1]) return false;
  return true;
}

}  // namespace longspan::sm90
