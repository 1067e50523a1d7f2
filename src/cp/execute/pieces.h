// What a rank holds while it runs a schedule: pieces of operands, each a region with its data.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "cp/execute/buffer_pool.h"
#include "cp/execute/rows.h"
#include "cp/schedule/schedule.h"

namespace longspan {

// One region of one operand: one tensor, or two (k and v, dk and dv), and lse with o.
struct Piece {
  Operand what = Operand::kQ;
  Ranges tokens;  // packed order
  Range heads;
  TensorView tensors[2];
  float* lse = nullptr;      // [heads, tokens]
  BufferPool::Lease memory;  // empty where the data is somebody else's
  DeviceKind kind = DeviceKind::kCpu;
  int32_t last_use = 0;    // round after which a copy is no longer needed
  int64_t copy_bytes = 0;  // of other ranks' operands in it
  bool in_place = false;   // lies in the tensors that the pass is to fill

  int tensor_count() const { return what == Operand::kKV || what == Operand::kDkv ? 2 : 1; }
  Rows rows(int tensor) const { return {kind, tensors[tensor], tensor == 0 ? lse : nullptr, lse_stride}; }
  int64_t lse_stride = 0;
};

// Allocates a piece of one dtype, uninitialised. `room`: as in BufferPool::take().
Piece make_piece(Operand what, Ranges tokens, Range heads, int64_t head_dim, DType dtype, const Pool& pool,
                 size_t room = 0);
size_t piece_bytes(Operand what, int64_t tokens, Range heads, int64_t head_dim, DType dtype);

// The same piece restricted to a range of its heads, or to rows [begin, end) of its packed order; does not
// own.
Piece with_heads(const Piece& piece, Range heads);
Piece with_rows(const Piece& piece, int64_t begin, int64_t end);

// lse as [heads, tokens] without gaps, where it is not: kernels and messages have none. The tensors stay
// where they are.
Piece with_packed_lse(Piece piece, const Pool& pool, Stream stream);
Piece with_room_for_lse(Piece piece, const Pool& pool);            // the same, not written
void copy_lse(const Piece& to, const Piece& from, Stream stream);  // of the same rows and heads

// Copies these rows of all tensors, and lse; or adds pairs of rows to `copies`, if it is given and they are
// few and have no lse.
void copy_spans(const Piece& to, const Piece& from, std::span<const RowSpan> spans, Stream stream,
                std::vector<RowPair>* copies = nullptr);

// Copies of operands that are read: own ones and those that came.
class Holdings {
 public:
  void add(Piece piece) { pieces_.push_back(std::move(piece)); }
  void drop_before(int32_t round);  // those whose last use lies before the round
  void clear() { pieces_.clear(); }
  int64_t copy_bytes() const;
  bool holds(Operand what, const Ranges& tokens,
             Range heads) const;  // exactly this region, or more heads of it

  // Is the piece a view of one of the rank's own tensors, which stay?
  bool is_own(const Piece& view) const;

  // The region as one piece: a view where one piece holds these tokens side by side in this order, else a
  // packed copy made from all that hold a part of it. Where `copies` is given, the copy is not made yet: what
  // few pairs of rows it consists of are added there.
  Piece read(Operand what, const Ranges& tokens, Range heads, const Pool& pool, Stream stream,
             size_t room = 0, std::vector<RowPair>* copies = nullptr) const;

  // Writes those of the piece's rows that are the rank's own, or adds to `copies`, as above; or says which
  // they are, as pairs of views of equally many rows: of the piece, and of what is to be written there.
  void copy_own(const Piece& to, Stream stream, std::vector<RowPair>* copies = nullptr) const;
  std::vector<std::pair<Piece, Piece>> own_rows(const Piece& to) const;

 private:
  std::deque<Piece> pieces_;
};

// Results: parts in f32 that are still to be summed ((o, lse) pairs are merged, gradients added), and final
// ones in the tensors' own dtype.
class Sums {
 public:
  // Adds to a part in f32 that has all of its rows and heads, if there is one; else it becomes a part.
  void add(Piece piece, Stream stream);

  // The same for several gradients, no two of which have a row and a head in common, at once.
  void add_all(std::vector<Piece> gradients, Stream stream);

  // The sum over all pieces for a region, written to `out` (its dtype), which takes it over: nothing is left
  // here.
  void take(Operand what, const Piece& out, const Pool& pool, Stream stream);

  // The same without a copy: a view, good until clear(), where one piece of this dtype has the region's rows
  // side by side, and no other has any of them.
  std::optional<Piece> lend(Operand what, const Ranges& tokens, Range heads, DType dtype);

  // The part in f32 of exactly this region, which is here no longer.
  std::optional<Piece> take_part(Operand what, const Ranges& tokens, Range heads);

  // The piece of exactly this region and dtype, with its memory; a view of it stays here.
  std::optional<Piece> share(Operand what, const Ranges& tokens, Range heads, DType dtype);

  // As take(), leaving it. A piece that lies in `out` already is not copied.
  void read(Operand what, const Piece& out, const Pool& pool, Stream stream) const;

  void clear() {
    pieces_.clear();
    lent_.clear();
  }

 private:
  // Replaces a piece by views of what it has besides these rows of these heads.
  void remove(size_t number, const Ranges& tokens, Range heads);

  std::deque<Piece> pieces_;
  std::vector<BufferPool::Lease> lent_;  // of pieces of which views are left
};

}  // namespace longspan
