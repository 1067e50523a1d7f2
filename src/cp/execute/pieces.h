// The data that a rank holds while it runs a schedule: pieces of operands, each a region with its data.
#pragma once

#include <array>
#include <deque>
#include <optional>
#include <vector>

#include "cp/execute/buffer_pool.h"
#include "cp/execute/rows.h"
#include "cp/schedule/schedule.h"

namespace longspan {

// What the rows of an operand consist of.
struct RowFormat {
  RowFormat(Operand what, DType dtype, const Problem& problem)
      : what(what), dtype(dtype), head_dims(head_dims_of(what, problem)), lse(has_lse(what, problem)) {}
  RowFormat(Operand what, DType dtype, std::array<int64_t, 2> head_dims, bool lse)
      : what(what), dtype(dtype), head_dims(head_dims), lse(lse) {}

  Operand what;
  DType dtype;
  std::array<int64_t, 2> head_dims;  // of its tensors, as head_dims_of() has them
  bool lse;
};

// One region of one operand: one tensor or two (k and v, dk and dv), and lse with o, its gradient with do.
struct Piece {
  Operand what = Operand::kQ;
  Ranges tokens;  // packed order
  Range heads;
  TensorView tensors[2];
  float* lse = nullptr;      // [heads, tokens]
  BufferPool::Lease memory;  // empty if the piece does not own its data
  DeviceKind kind = DeviceKind::kCpu;
  bool own = false;        // the rank's own tokens, in the caller's tensors; true of views of it, too
  int32_t last_use = 0;    // the copy can be dropped after this round
  int64_t copy_bytes = 0;  // bytes of other ranks' operands in it

  RowFormat format() const {
    return {what, tensors[0].dtype, {tensors[0].head_dim, tensors[1].head_dim}, lse != nullptr};
  }
  int tensor_count() const { return what == Operand::kKV || what == Operand::kDkv ? 2 : 1; }
  Rows rows(int tensor) const { return {kind, tensors[tensor], tensor == 0 ? lse : nullptr, lse_stride}; }
  int64_t lse_stride = 0;
};

// An uninitialised piece, in a buffer of the pool or in given memory of piece_bytes(). `room` is as in
// BufferPool::take().
Piece make_piece(const RowFormat& format, Ranges tokens, Range heads, const Pool& pool, size_t room = 0);
Piece piece_at(void* memory, DeviceKind kind, const RowFormat& format, Ranges tokens, Range heads);
size_t piece_bytes(const RowFormat& format, int64_t tokens, Range heads);

// A view of the piece restricted to some of its heads, or to rows [begin, end) of its packed order.
Piece with_heads(const Piece& piece, Range heads);
Piece with_rows(const Piece& piece, int64_t begin, int64_t end);

// The piece with lse as contiguous [heads, tokens], which kernels and messages require; copies lse if it has
// gaps. The tensors are not copied.
Piece with_packed_lse(Piece piece, const Pool& pool, Stream stream);
Piece with_room_for_lse(Piece piece, const Pool& pool);            // the same with uninitialised lse
void copy_lse(const Piece& to, const Piece& from, Stream stream);  // of the same rows and heads

// Copies these rows of all tensors, and lse. If `copies` is given, the spans are few and there is no lse,
// adds row pairs to `copies` instead.
void copy_spans(const Piece& to, const Piece& from, std::span<const RowSpan> spans, Stream stream,
                std::vector<RowPair>* copies = nullptr);

// Operands that attends read: the rank's own and received copies.
class Holdings {
 public:
  void add(Piece piece) { pieces_.push_back(std::move(piece)); }
  void drop_before(int32_t round);  // drops copies whose last use is before the round
  void clear() { pieces_.clear(); }
  int64_t copy_bytes() const;

  // The region as one piece: a view if one held piece has these tokens contiguously in this order, else a
  // packed copy of all pieces that hold a part of it. With `copies`, a copy of few row pairs is not made yet;
  // its pairs are added to `copies`.
  Piece read(Operand what, const Ranges& tokens, Range heads, const Pool& pool, Stream stream,
             size_t room = 0, std::vector<RowPair>* copies = nullptr) const;

  // copy_own writes the rows of the piece that the rank owns, or adds them to `copies` as above. own_rows
  // returns pairs of equally long views for these rows: in the piece, and the source.
  void copy_own(const Piece& to, Stream stream, std::vector<RowPair>* copies = nullptr) const;
  std::vector<std::pair<Piece, Piece>> own_rows(const Piece& to) const;

 private:
  std::deque<Piece> pieces_;
};

// Results: f32 parts still to be summed ((o, lse) pairs are merged, gradients added), and final ones in the
// tensors' own dtype.
class Sums {
 public:
  // Adds the piece to an f32 part with all of its rows and heads if one exists; otherwise keeps it as a new
  // part.
  void add(Piece piece, Stream stream);

  // Adds several gradients in one batch; no two may share a row and a head.
  void add_all(std::vector<Piece> gradients, Stream stream);

  // Writes the sum over all pieces of a region to `out`, in its dtype, and removes the region here.
  void take(Operand what, const Piece& out, const Pool& pool, Stream stream);

  // Like take(), without a copy: a view, valid until clear(), if one piece of this dtype has the region's
  // rows contiguously and no other piece has any of them.
  std::optional<Piece> lend(Operand what, const Ranges& tokens, Range heads, DType dtype);

  // Removes and returns the f32 part of exactly this region.
  std::optional<Piece> take_part(Operand what, const Ranges& tokens, Range heads);

  // Whether a result was written to this very place.
  bool lies_at(const Piece& place) const;

  // Like take(), without removing anything. Own pieces already lie in an own `out`.
  void read(Operand what, const Piece& out, const Pool& pool, Stream stream) const;

  void clear() {
    pieces_.clear();
    lent_.clear();
  }

 private:
  // Replaces a piece by views of its rows outside these rows and heads.
  void remove(size_t number, const Ranges& tokens, Range heads);

  std::deque<Piece> pieces_;
  std::vector<BufferPool::Lease> lent_;  // memory of pieces that are now held as views
};

}  // namespace longspan
