#include "cp/pieces.h"

#include <algorithm>

#include "base/error.h"

namespace longspan {
namespace {

bool share_heads(Range a, Range b) {
  return a.begin < b.end && b.begin < a.end;
}
Range common(Range a, Range b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}
bool inside(Range inner, Range outer) {
  return outer.begin <= inner.begin && inner.end <= outer.end;
}

// The rows that two pieces have in common.
std::vector<RowSpan> spans_between(const Piece& to, const Piece& from) {
  std::vector<RowSpan> spans;
  for_each_common(from.tokens, to.tokens, [&](int64_t from_row, int64_t to_row, int64_t rows) {
    if (!spans.empty() && spans.back().to + spans.back().rows == to_row &&
        spans.back().from + spans.back().rows == from_row) {
      spans.back().rows += rows;
    } else {
      spans.push_back({to_row, from_row, rows});
    }
  });
  return spans;
}

size_t aligned(size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

}  // namespace

Piece make_piece(Operand what, Ranges tokens, Range heads, int64_t head_dim, DType dtype, const Pool& pool) {
  Piece piece;
  piece.what = what;
  piece.tokens = std::move(tokens);
  piece.heads = heads;
  const int64_t rows = count(piece.tokens);
  const size_t tensor_bytes = aligned(static_cast<size_t>(rows * heads.size() * head_dim) * size_of(dtype));
  const size_t lse_bytes = what == Operand::kO ? aligned(static_cast<size_t>(rows * heads.size()) * 4) : 0;
  const auto tensors = static_cast<size_t>(piece.tensor_count());
  piece.memory = pool->take(std::max<size_t>(256, tensors * tensor_bytes + lse_bytes));
  piece.kind = pool->device().kind;
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
  view.kind = piece.kind;
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

Piece Holdings::read(Operand what, const Ranges& tokens, Range heads, const Pool& pool, Stream stream) const {
  for (auto piece = pieces_.rbegin(); piece != pieces_.rend(); ++piece) {
    if (piece->what == what && inside(heads, piece->heads) && piece->tokens == tokens)
      return with_heads(*piece, heads);
  }
  Piece packed;
  for (const Piece& piece : pieces_) {
    if (piece.what != what || !share_heads(piece.heads, heads)) continue;
    if (packed.memory.data() == nullptr) {
      packed = make_piece(what, tokens, heads, piece.tensors[0].head_dim, piece.tensors[0].dtype, pool);
    }
    const Range shared = common(piece.heads, heads);
    const Piece from = with_heads(piece, shared), to = with_heads(packed, shared);
    const std::vector<RowSpan> spans = spans_between(to, from);
    for (int i = 0; i < packed.tensor_count(); ++i)
      apply(RowOperation::kCopy, to.rows(i), from.rows(i), spans, stream);
  }
  LONGSPAN_CHECK(packed.memory.data() != nullptr, "nothing of {} is held", name_of(what));
  return packed;
}

Piece& Sums::open(Operand what, const Ranges& tokens, Range heads, int64_t head_dim, const Pool& pool) {
  pieces_.push_back(make_piece(what, tokens, heads, head_dim, DType::kF32, pool));
  return pieces_.back();
}

namespace {

void accumulate(const Piece& to, const Piece& from, Stream stream) {
  const Range shared = common(to.heads, from.heads);
  if (shared.empty()) return;
  const Piece target = with_heads(to, shared), source = with_heads(from, shared);
  const std::vector<RowSpan> spans = spans_between(target, source);
  const auto operation = to.what == Operand::kO ? RowOperation::kMerge : RowOperation::kAdd;
  for (int i = 0; i < to.tensor_count(); ++i) apply(operation, target.rows(i), source.rows(i), spans, stream);
}

void clear_piece(const Piece& piece, std::span<const RowSpan> spans, Stream stream) {
  for (int i = 0; i < piece.tensor_count(); ++i)
    apply(RowOperation::kClear, piece.rows(i), {}, spans, stream);
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

void Sums::read(Operand what, const Piece& out, const Pool& pool, Stream stream) const {
  const Ranges set = set_of(out.tokens);
  const Piece* only = nullptr;
  int parts = 0;
  for (const Piece& piece : pieces_) {
    if (piece.what != what || !share_heads(piece.heads, out.heads)) continue;
    if (intersection(set_of(piece.tokens), set).empty()) continue;
    only = &piece;
    ++parts;
  }
  const bool whole =
      parts == 1 && inside(out.heads, only->heads) && difference(set, set_of(only->tokens)).empty();
  if (whole) {  // one conversion, no arithmetic
    const Piece source = with_heads(*only, out.heads);
    const std::vector<RowSpan> spans = spans_between(out, source);
    for (int i = 0; i < out.tensor_count(); ++i)
      apply(RowOperation::kCopy, out.rows(i), source.rows(i), spans, stream);
    return;
  }
  const bool direct = out.tensors[0].dtype == DType::kF32;
  Piece scratch;
  if (!direct) scratch = make_piece(what, out.tokens, out.heads, out.tensors[0].head_dim, DType::kF32, pool);
  const Piece& sum = direct ? out : scratch;
  const RowSpan all{0, 0, count(out.tokens)};
  clear_piece(sum, {&all, 1}, stream);
  for (const Piece& piece : pieces_) {
    if (piece.what == what) accumulate(sum, piece, stream);
  }
  if (direct) return;
  for (int i = 0; i < out.tensor_count(); ++i)
    apply(RowOperation::kCopy, out.rows(i), sum.rows(i), {&all, 1}, stream);
}

void Sums::take(Operand what, const Piece& out, const Pool& pool, Stream stream) {
  read(what, out, pool, stream);
  const Ranges set = set_of(out.tokens);
  std::erase_if(pieces_, [&](const Piece& piece) {
    if (piece.what != what || !share_heads(piece.heads, out.heads)) return false;
    if (inside(piece.heads, out.heads) && difference(set_of(piece.tokens), set).empty()) return true;
    const Piece left = with_heads(piece, common(piece.heads, out.heads));
    clear_piece(left, spans_between(left, out), stream);
    return false;
  });
}

}  // namespace longspan
