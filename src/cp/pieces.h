// What a rank holds while it runs a schedule: pieces of operands, each a region with its data.
#pragma once

#include <deque>

#include "cp/buffer_pool.h"
#include "cp/rows.h"
#include "cp/schedule.h"

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
  int32_t last_use = 0;  // round after which a copy is no longer needed

  int tensor_count() const { return what == Operand::kKV || what == Operand::kDkv ? 2 : 1; }
  Rows rows(int tensor) const { return {kind, tensors[tensor], tensor == 0 ? lse : nullptr, lse_stride}; }
  int64_t lse_stride = 0;
};

// Allocates a piece of one dtype, uninitialised.
Piece make_piece(Operand what, Ranges tokens, Range heads, int64_t head_dim, DType dtype, const Pool& pool);

// The same piece restricted to a range of its heads; does not own.
Piece with_heads(const Piece& piece, Range heads);

// Copies of operands that are read: own ones and those that came.
class Holdings {
 public:
  void add(Piece piece) { pieces_.push_back(std::move(piece)); }
  void drop_before(int32_t round);  // those whose last use lies before the round
  void clear() { pieces_.clear(); }
  int64_t owned_bytes() const;
  bool holds(Operand what, const Ranges& tokens,
             Range heads) const;  // exactly this region, or more heads of it

  // The region as one piece: a view where one piece holds exactly these tokens in this order, else a packed
  // copy made from all that hold a part of it.
  Piece read(Operand what, const Ranges& tokens, Range heads, const Pool& pool, Stream stream) const;

 private:
  std::deque<Piece> pieces_;
};

// Results that are accumulated in f32: (o, lse) pairs are merged, gradients added.
class Sums {
 public:
  // Room for a result of this region that nothing has been written to: the caller must fill it, all of it,
  // and then call settle().
  Piece& open(Operand what, const Ranges& tokens, Range heads, int64_t head_dim, const Pool& pool);
  // Folds the piece opened last into an earlier one of the same region, if there is one.
  void settle(Stream stream);
  void add(Piece piece) { pieces_.push_back(std::move(piece)); }

  // The sum over all pieces for a region, written to `out` (its dtype), which takes it over: nothing is left
  // here.
  void take(Operand what, const Piece& out, const Pool& pool, Stream stream);

  // The same, leaving it.
  void read(Operand what, const Piece& out, const Pool& pool, Stream stream) const;

  void clear() { pieces_.clear(); }

 private:
  std::deque<Piece> pieces_;
};

}  // namespace longspan
