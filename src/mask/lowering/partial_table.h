// The distinct partial tiles of a tile map, looked up by their contents.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "mask/chunks.h"
#include "mask/lowering/tile_map.h"
#include "mask/lowering/tile_piece.h"

namespace longspan {

// Numbers the partial tiles of a map.
class PartialNumbers {
 public:
  virtual ~PartialNumbers() = default;
  // The number of the partial tile whose visible pairs are the union of the disjoint pieces.
  virtual int32_t number_of(std::span<const TilePiece> pieces) = 0;
};

// A reused table keeps its memory from one map to the next.
class PartialTable final : public PartialNumbers {
 public:
  // Removes all partial tiles.
  void begin(TileShape shape);

  int32_t number_of(std::span<const TilePiece> pieces) override;

  const Partial& partial(int32_t number) const { return partials_[static_cast<size_t>(number)]; }
  std::span<const Span> layer(int32_t number) {
    const auto rows = static_cast<size_t>(shape_.rows);
    return {&spans_[static_cast<size_t>(number) * rows], rows};
  }

  // Moves all partial tiles into a map, or their spans out.
  void take(TileMap& map);
  std::vector<Span> take_spans();

 private:
  // A set-associative cache of piece lists seen before; when a set is full, a new list replaces an old one.
  // Masks can have millions of partial tiles of few kinds, and drawing each one only to find it known would
  // take seconds.
  static constexpr size_t kMemoWords = 4, kMemoWays = 4;
  static constexpr size_t kFewestMemos = size_t{1} << 9, kMostMemos = size_t{1} << 18;
  struct Memo {
    std::array<uint64_t, kMemoWords> key{};  // a word per piece for its sides, one for its bounds
    int32_t kind = 0, number = 0;            // number of pieces and which have bounds; kind 0: unused
    bool shows(const Memo& other) const {
      uint64_t differs = static_cast<uint64_t>(kind ^ other.kind);
      for (size_t i = 0; i < kMemoWords; ++i) differs |= key[i] ^ other.key[i];
      return differs == 0;
    }
  };
  static Memo memo_of(std::span<const TilePiece> pieces);  // kind 0 if the list is too long to cache
  Memo& place_of(const Memo& memo);                        // its cached entry, or the one to overwrite
  void grow_memos();

  int32_t number_of_drawn(int64_t area);
  void list(int32_t number);
  void draw(std::span<const TilePiece> pieces);
  void draw(const TilePiece& piece, int32_t begin, int32_t end);
  void draw_row(int32_t row);
  bool drawn_equals(const Partial& partial);

  TileShape shape_;
  std::vector<Memo> memos_, fewer_memos_;  // fewer_memos_: the table before it grew
  size_t kept_ = 0;                        // entries of memos_ in use
  std::vector<Partial> partials_;
  Chunks<Span> spans_{0};
  // Hash table over the drawn spans: one list for each hash, a power of two of them.
  std::vector<int32_t> first_, next_;  // -1 ends a list
  std::vector<uint64_t> hashes_;
  std::vector<Span> drawn_;      // [layers, shape.rows]
  std::vector<uint16_t> cuts_;   // rows where the set of live pieces changes
  std::vector<TilePiece> live_;  // the live pieces, from left to right
};

}  // namespace longspan
