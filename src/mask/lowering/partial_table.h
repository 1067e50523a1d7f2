// The distinct partial tiles of a tile map, found by what they show.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "mask/chunks.h"
#include "mask/lowering/tile_map.h"
#include "mask/lowering/tile_piece.h"

namespace longspan {

// One that is used again for another map need not ask for memory again.
class PartialTable {
 public:
  // Forgets all partial tiles.
  void begin(TileShape shape);

  // The number of the partial tile whose visible pairs are those of the disjoint pieces.
  int32_t number_of(std::span<const TilePiece> pieces);

  // Moves all partial tiles to a map.
  void take(TileMap& map);

 private:
  // Lists of pieces seen before, each in one of the few places that its hash gives; where all are taken, the
  // last comer takes that of another. Masks have up to millions of partial tiles of few kinds: to draw the
  // rows of each only to find it known would take seconds.
  static constexpr size_t kMemoWords = 4, kMemoWays = 4;
  static constexpr size_t kFewestMemos = size_t{1} << 9, kMostMemos = size_t{1} << 18;
  struct Memo {
    std::array<uint64_t, kMemoWords> key{};  // a word for each piece's sides, and one for its bounds if any
    int32_t kind = 0, number = 0;            // number of pieces, and which have bounds; 0: nothing yet
    bool shows(const Memo& other) const {
      uint64_t differs = static_cast<uint64_t>(kind ^ other.kind);
      for (size_t i = 0; i < kMemoWords; ++i) differs |= key[i] ^ other.key[i];
      return differs == 0;
    }
  };
  static Memo memo_of(std::span<const TilePiece> pieces);  // kind 0 for pieces that are not kept
  Memo& place_of(const Memo& memo);                        // where it is, or where it may go
  void grow_memos();

  int32_t number_of_drawn(int64_t area);
  void list(int32_t number);
  void draw(std::span<const TilePiece> pieces);
  void draw(const TilePiece& piece, int32_t begin, int32_t end);
  void draw_row(int32_t row);
  bool drawn_equals(const Partial& partial);

  TileShape shape_;
  std::vector<Memo> memos_, fewer_memos_;  // the latter: those before they grew
  size_t kept_ = 0;                        // of them
  std::vector<Partial> partials_;
  Chunks<Span> spans_{0};
  // The partial tiles by the hash of what is drawn: a list for each of a power of two of hashes.
  std::vector<int32_t> first_, next_;  // -1: there is no other
  std::vector<uint64_t> hashes_;
  std::vector<Span> drawn_;      // [layers, shape.rows]
  std::vector<uint16_t> cuts_;   // rows between which the same pieces are live
  std::vector<TilePiece> live_;  // those, from left to right
};

}  // namespace longspan
