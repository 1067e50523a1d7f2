#include "cp/pieces.h"

#include <algorithm>

#include "base/error.h"

namespace longspan {
namespace {

bool overlap(Range a, Range b) {
  return a.begin < b.end && b.begin < a.end;
}
Range common(Range a, Range b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}
bool inside(Range inner, Range outer) {
  return outer.begin <= inner.begin && inner.end <= outer.end;
}

size_t aligned(size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

}  // namespace

Piece make_piece(Operand what, Ranges tokens, Range heads, int64_t head_dim, DType dtype,
                 const Device& device) {
  Piece piece;
  piece.what = what;
  piece.tokens = std::move(tokens);
  piece.heads = heads;
  const int64_t rows = count(piece.tokens);
  const size_t tensor_bytes = aligned(static_cast<size_t>(rows * heads.size() * head_dim) * size_of(dtype));
  const size_t lse_bytes = what == Operand::kO ? aligned(static_cast<size_t>(rows * heads.size()) * 4) : 0;
  const auto tensors = static_cast<size_t>(piece.tensor_count());
  piece.memory = Buffer(std::max<size_t>(256, tensors * tensor_bytes + lse_bytes), device);
  char* memory = piece.memory.as<char>();
  for (size_t i = 0; i < tensors; ++i) {
    piece.tensors[i] = TensorView::contiguous(memory + i * tensor_bytes, dtype, rows, heads.size(), head_dim);
  }
  if (what == Operand::kO) {
    piece.lse = reinterpret_cast<float*>(memory + tensors * tensor_bytes);
    piece.lse_stride = rows;
  }
  return piece;
}

Piece with_heads(const Piece& piece, Range heads) {
  LONGSPAN_CHECK(inside(heads, piece.heads), "heads {}-{} are not all of {}-{}", heads.begin, heads.end,
                 piece.heads.begin, piece.heads.end);
  Piece view;
  view.what = piece.what;
  view.tokens = piece.tokens;
  view.heads = heads;
  const int64_t skip = heads.begin - piece.heads.begin;
  for (int i = 0; i < piece.tensor_count(); ++i) {
    view.tensors[i] = piece.tensors[i].head(skip);
    view.tensors[i].heads = heads.size();
  }
  if (piece.lse != nullptr) view.lse = piece.lse + skip * piece.lse_stride;
  view.lse_stride = piece.lse_stride;
  return view;
}

void Holdings::drop_before(int32_t round) {
  std::erase_if(pieces_, [&](const Piece& piece) { return piece.last_use < round; });
}

bool Holdings::holds(Operand what, const Ranges& tokens, Range heads) const {
  return std::any_of(pieces_.begin(), pieces_.end(), [&](const Piece& piece) {
    return piece.what == what && inside(heads, piece.heads) && piece.tokens == tokens;
  });
}

int64_t Holdings::owned_bytes() const {
  int64_t bytes = 0;
  for (const Piece& piece : pieces_) bytes += static_cast<int64_t>(piece.memory.bytes());
  return bytes;
}

Piece Holdings::read(Operand what, const Ranges& tokens, Range heads, const Device& device,
                     Stream stream) const {
  for (auto piece = pieces_.rbegin(); piece != pieces_.rend(); ++piece) {
    if (piece->what == what && inside(heads, piece->heads) && piece->tokens == tokens)
      return with_heads(*piece, heads);
  }
  Piece packed;
  for (const Piece& piece : pieces_) {
    if (piece.what != what || !overlap(piece.heads, heads)) continue;
    if (packed.memory.data() == nullptr) {
      packed = make_piece(what, tokens, heads, piece.tensors[0].head_dim, piece.tensors[0].dtype, device);
    }
    const Range shared = common(piece.heads, heads);
    const Piece from = with_heads(piece, shared), to = with_heads(packed, shared);
    for_each_common(piece.tokens, tokens, [&](int64_t source, int64_t target, int64_t rows) {
      for (int i = 0; i < packed.tensor_count(); ++i)
        copy_rows(to.rows(i, target), from.rows(i, source), rows, stream);
    });
  }
  LONGSPAN_CHECK(packed.memory.data() != nullptr, "nothing of {} is held", name_of(what));
  return packed;
}

Piece& Sums::open(Operand what, const Ranges& tokens, Range heads, int64_t head_dim, const Device& device) {
  pieces_.push_back(make_piece(what, tokens, heads, head_dim, DType::kF32, device));
  return pieces_.back();
}

namespace {

void accumulate(const Piece& to, const Piece& from, Stream stream) {
  const Range shared = common(to.heads, from.heads);
  if (shared.empty()) return;
  const Piece target = with_heads(to, shared), source = with_heads(from, shared);
  for_each_common(from.tokens, to.tokens, [&](int64_t from_row, int64_t to_row, int64_t rows) {
    for (int i = 0; i < to.tensor_count(); ++i) {
      if (to.what == Operand::kO) {
        merge_rows(target.rows(i, to_row), source.rows(i, from_row), rows, stream);
      } else {
        add_rows(target.rows(i, to_row), source.rows(i, from_row), rows, stream);
      }
    }
  });
}

void clear_piece(const Piece& piece, int64_t row, int64_t rows, Stream stream) {
  for (int i = 0; i < piece.tensor_count(); ++i) clear_rows(piece.rows(i, row), rows, stream);
}

}  // namespace

void Sums::settle(Stream stream) {
  Piece& last = pieces_.back();
  for (Piece& piece : pieces_) {
    if (&piece == &last || piece.what != last.what || piece.heads != last.heads ||
        piece.tokens != last.tokens)
      continue;
    if (piece.tensors[0].dtype != DType::kF32) continue;
    accumulate(piece, last, stream);
    pieces_.pop_back();
    return;
  }
}

void Sums::read(Operand what, const Piece& out, const Device& device, Stream stream) const {
  const Ranges set = set_of(out.tokens);
  const Piece* only = nullptr;
  int parts = 0;
  for (const Piece& piece : pieces_) {
    if (piece.what != what || !overlap(piece.heads, out.heads)) continue;
    if (intersection(set_of(piece.tokens), set).empty()) continue;
    only = &piece;
    ++parts;
  }
  const bool whole =
      parts == 1 && inside(out.heads, only->heads) && difference(set, set_of(only->tokens)).empty();
  if (whole) {  // one conversion, no arithmetic
    const Piece source = with_heads(*only, out.heads);
    for_each_common(source.tokens, out.tokens, [&](int64_t from, int64_t to, int64_t rows) {
      for (int i = 0; i < out.tensor_count(); ++i)
        copy_rows(out.rows(i, to), source.rows(i, from), rows, stream);
    });
    return;
  }
  const bool direct = out.tensors[0].dtype == DType::kF32;
  Piece scratch;
  if (!direct)
    scratch = make_piece(what, out.tokens, out.heads, out.tensors[0].head_dim, DType::kF32, device);
  const Piece& sum = direct ? out : scratch;
  clear_piece(sum, 0, count(out.tokens), stream);
  for (const Piece& piece : pieces_) {
    if (piece.what == what) accumulate(sum, piece, stream);
  }
  if (direct) return;
  for (int i = 0; i < out.tensor_count(); ++i)
    copy_rows(out.rows(i, 0), sum.rows(i, 0), count(out.tokens), stream);
}

void Sums::take(Operand what, const Piece& out, const Device& device, Stream stream) {
  read(what, out, device, stream);
  const Ranges set = set_of(out.tokens);
  std::erase_if(pieces_, [&](const Piece& piece) {
    if (piece.what != what || !overlap(piece.heads, out.heads)) return false;
    if (inside(piece.heads, out.heads) && difference(set_of(piece.tokens), set).empty()) return true;
    const Piece left = with_heads(piece, common(piece.heads, out.heads));
    for_each_common(left.tokens, out.tokens,
                    [&](int64_t row, int64_t, int64_t rows) { clear_piece(left, row, rows, stream); });
    return false;
  });
}

}  // namespace longspan
