#include "cp/execute/pieces.h"

#include <algorithm>

#include "base/error.h"
#include "cp/schedule/ranges.h"

namespace longspan {
namespace {

bool share_heads(Range a, Range b) {
  return a.begin < b.end && b.begin < a.end;
}
Range common(Range a, Range b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

// Visits the rows that two pieces share.
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

size_t tensor_bytes(int64_t tokens, Range heads, int64_t head_dim, DType dtype) {
  return aligned(static_cast<size_t>(tokens * heads.size() * head_dim) * size_of(dtype));
}

}  // namespace

size_t piece_bytes(const RowFormat& format, int64_t tokens, Range heads) {
  size_t bytes = format.lse ? tensor_bytes(tokens, heads, 1, DType::kF32) : 0;
  for (const int64_t head_dim : format.head_dims)
    bytes += tensor_bytes(tokens, heads, head_dim, format.dtype);
  return std::max<size_t>(256, bytes);
}

Piece make_piece(const RowFormat& format, Ranges tokens, Range heads, const Pool& pool, size_t room) {
  BufferPool::Lease memory = pool->take(piece_bytes(format, count(tokens), heads), room);
  Piece piece = piece_at(memory.data(), pool->device().kind, format, std::move(tokens), heads);
  piece.memory = std::move(memory);
  return piece;
}

Piece piece_at(void* memory, DeviceKind kind, const RowFormat& format, Ranges tokens, Range heads) {
  Piece piece;
  piece.what = format.what;
  piece.tokens = std::move(tokens);
  piece.heads = heads;
  piece.kind = kind;
  const int64_t rows = count(piece.tokens);
  char* data = static_cast<char*>(memory);
  for (int i = 0; i < piece.tensor_count(); ++i) {
    const int64_t head_dim = format.head_dims[static_cast<size_t>(i)];
    piece.tensors[i] = TensorView::contiguous(data, format.dtype, rows, heads.size(), head_dim);
    data += tensor_bytes(rows, heads, head_dim, format.dtype);
  }
  if (format.lse) {
    piece.lse = reinterpret_cast<float*>(data);
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
  view.own = piece.own;
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

Piece with_rows(const Piece& piece, int64_t begin, int64_t end) {
  Piece view = with_heads(piece, piece.heads);
  view.tokens = slice(piece.tokens, begin, end);
  for (int i = 0; i < piece.tensor_count(); ++i) {
    view.tensors[i].data = piece.tensors[i].row_address(begin, 0);
    view.tensors[i].tokens = end - begin;
  }
  if (piece.lse != nullptr) view.lse = piece.lse + begin;
  return view;
}

Piece with_room_for_lse(Piece piece, const Pool& pool) {
  const int64_t rows = count(piece.tokens);
  LONGSPAN_CHECK(piece.memory.data() == nullptr, "a piece with gaps in its lse owns memory");
  piece.memory =
      pool->take(aligned(std::max<size_t>(256, static_cast<size_t>(rows * piece.heads.size()) * 4)));
  piece.lse = piece.memory.as<float>();
  piece.lse_stride = rows;
  return piece;
}

void copy_lse(const Piece& to, const Piece& from, Stream stream) {
  Rows target = to.rows(0), source = from.rows(0);
  target.tensor.head_dim = source.tensor.head_dim = 0;
  const RowSpan all{0, 0, count(to.tokens)};
  apply(RowOperation::kCopy, target, source, {&all, 1}, stream);
}

Piece with_packed_lse(Piece piece, const Pool& pool, Stream stream) {
  if (piece.lse == nullptr || piece.lse_stride == count(piece.tokens)) return piece;
  const Piece gaps = with_heads(piece, piece.heads);
  piece = with_room_for_lse(std::move(piece), pool);
  copy_lse(piece, gaps, stream);
  return piece;
}

void copy_spans(const Piece& to, const Piece& from, std::span<const RowSpan> spans, Stream stream,
                std::vector<RowPair>* copies) {
  constexpr size_t kFew = 32;  // a launch takes more spans of one tensor than pairs
  const auto rows_of = [](TensorView tensor, int64_t first, int64_t rows) {
    tensor.data = tensor.row_address(first, 0);
    tensor.tokens = rows;
    return tensor;
  };
  for (int i = 0; i < to.tensor_count(); ++i) {
    if (copies == nullptr || to.lse != nullptr || spans.size() > kFew) {
      apply(RowOperation::kCopy, to.rows(i), from.rows(i), spans, stream);
      continue;
    }
    for (const RowSpan& span : spans)
      copies->push_back(
          {rows_of(to.tensors[i], span.to, span.rows), rows_of(from.tensors[i], span.from, span.rows)});
  }
}

void Holdings::drop_before(int32_t round) {
  std::erase_if(pieces_, [&](const Piece& piece) { return piece.last_use < round; });
}

int64_t Holdings::copy_bytes() const {
  int64_t bytes = 0;
  for (const Piece& piece : pieces_) bytes += piece.copy_bytes;
  return bytes;
}

Piece Holdings::read(Operand what, const Ranges& tokens, Range heads, const Pool& pool, Stream stream,
                     size_t room, std::vector<RowPair>* copies) const {
  for (auto piece = pieces_.rbegin(); piece != pieces_.rend(); ++piece) {
    if (piece->what != what || !inside(heads, piece->heads)) continue;
    if (piece->tokens == tokens) return with_heads(*piece, heads);
    const int64_t row = position_of(tokens, piece->tokens);
    if (row >= 0) return with_rows(with_heads(*piece, heads), row, row + count(tokens));
  }
  Piece packed;
  int64_t rows = 0;  // per head
  for (const Piece& piece : pieces_) {
    if (piece.what != what || !share_heads(piece.heads, heads)) continue;
    if (packed.memory.data() == nullptr) packed = make_piece(piece.format(), tokens, heads, pool, room);
    const Range shared = common(piece.heads, heads);
    const Piece from = with_heads(piece, shared), to = with_heads(packed, shared);
    const std::vector<RowSpan> spans = spans_between(to, from);
    copy_spans(to, from, spans, stream, copies);
    for (const RowSpan& span : spans) rows += span.rows * shared.size();
  }
  LONGSPAN_CHECK(rows >= count(tokens) * heads.size(), "{} of {} rows of {} are held", rows,
                 count(tokens) * heads.size(), name_of(what));
  return packed;
}

std::vector<std::pair<Piece, Piece>> Holdings::own_rows(const Piece& to) const {
  std::vector<std::pair<Piece, Piece>> pairs;
  for (const Piece& piece : pieces_) {
    if (piece.what != to.what || !piece.own || !share_heads(piece.heads, to.heads)) continue;
    const Range shared = common(piece.heads, to.heads);
    const Piece source = with_heads(piece, shared), target = with_heads(to, shared);
    for (const RowSpan& span : spans_between(target, source)) {
      pairs.emplace_back(with_rows(target, span.to, span.to + span.rows),
                         with_rows(source, span.from, span.from + span.rows));
    }
  }
  return pairs;
}

void Holdings::copy_own(const Piece& to, Stream stream, std::vector<RowPair>* copies) const {
  for (const Piece& piece : pieces_) {
    if (piece.what != to.what || !piece.own || !share_heads(piece.heads, to.heads)) continue;
    const Range shared = common(piece.heads, to.heads);
    const Piece source = with_heads(piece, shared), target = with_heads(to, shared);
    copy_spans(target, source, spans_between(target, source), stream, copies);
  }
}

namespace {

void combine(RowOperation operation, const Piece& to, const Piece& from, Stream stream) {
  const Range shared = common(to.heads, from.heads);
  if (shared.empty()) return;
  const Piece target = with_heads(to, shared), source = with_heads(from, shared);
  const std::vector<RowSpan> spans = spans_between(target, source);
  for (int i = 0; i < to.tensor_count(); ++i) apply(operation, target.rows(i), source.rows(i), spans, stream);
}

void accumulate(const Piece& to, const Piece& from, Stream stream) {
  combine(to.what == Operand::kO ? RowOperation::kMerge : RowOperation::kAdd, to, from, stream);
}

// Visits the rows that two pieces of the same heads share, in all their tensors.
void add_pairs(std::vector<RowPair>& pairs, const Piece& to, const Piece& from) {
  for (const RowSpan& span : spans_between(to, from)) {
    const Piece target = with_rows(to, span.to, span.to + span.rows),
                source = with_rows(from, span.from, span.from + span.rows);
    for (int i = 0; i < to.tensor_count(); ++i) pairs.push_back({target.tensors[i], source.tensors[i]});
  }
}

void clear_piece(const Piece& piece, std::span<const RowSpan> spans, Stream stream) {
  for (int i = 0; i < piece.tensor_count(); ++i)
    apply(RowOperation::kClear, piece.rows(i), {}, spans, stream);
}

// Whether two pieces share an element.
bool meet(const Piece& a, const Piece& b) {
  return share_heads(a.heads, b.heads) && overlap(set_of(a.tokens), set_of(b.tokens));
}

}  // namespace

void Sums::add(Piece piece, Stream stream) {
  for (const Piece& sum : pieces_) {
    if (sum.what != piece.what || sum.tensors[0].dtype != DType::kF32 || !inside(piece.heads, sum.heads))
      continue;
    if (sum.tokens != piece.tokens && !includes(set_of(sum.tokens), set_of(piece.tokens))) continue;
    accumulate(sum, piece, stream);
    return;
  }
  pieces_.push_back(std::move(piece));
}

void Sums::add_all(std::vector<Piece> gradients, Stream stream) {
  std::vector<RowPair> pairs;
  DeviceKind kind = DeviceKind::kCpu;
  for (Piece& piece : gradients) {
    const auto holds = [&](const Piece& sum) {
      return sum.what == piece.what && sum.tensors[0].dtype == DType::kF32 &&
             inside(piece.heads, sum.heads) &&
             (sum.tokens == piece.tokens || includes(set_of(sum.tokens), set_of(piece.tokens)));
    };
    const auto sum = std::find_if(pieces_.begin(), pieces_.end(), holds);
    if (sum == pieces_.end()) {
      pieces_.push_back(std::move(piece));
    } else {
      add_pairs(pairs, with_heads(*sum, piece.heads), piece);
      kind = piece.kind;
    }
  }
  if (!pairs.empty()) apply_pairs(RowOperation::kAdd, kind, pairs, stream);
}

void Sums::read(Operand what, const Piece& out, const Pool& pool, Stream stream) const {
  std::vector<const Piece*> parts;
  int64_t covered = 0;  // elements of lse, as if every operand had one
  bool apart = true, in_place = false;
  const Ranges set = set_of(out.tokens);
  for (const Piece& piece : pieces_) {
    if (piece.what != what || !meet(piece, out)) continue;
    for (const Piece* part : parts) apart = apart && !meet(piece, *part);
    parts.push_back(&piece);
    in_place = in_place || (piece.own && out.own);
    covered += common(piece.heads, out.heads).size() * count(intersection(set_of(piece.tokens), set));
  }
  const RowSpan all{0, 0, count(out.tokens)};
  const bool whole = covered == all.rows * out.heads.size();
  if (apart && (whole || !in_place)) {  // no sums needed: copy each part to its place, with conversion
    if (!whole) clear_piece(out, {&all, 1}, stream);
    std::vector<RowPair> pairs;
    for (const Piece* part : parts) {
      if (part->own && out.own) continue;
      if (out.lse != nullptr) {
        combine(RowOperation::kCopy, out, *part, stream);
      } else if (const Range shared = common(out.heads, part->heads); !shared.empty()) {
        add_pairs(pairs, with_heads(out, shared), with_heads(*part, shared));
      }
    }
    if (!pairs.empty()) apply_pairs(RowOperation::kCopy, out.kind, pairs, stream);
    return;
  }
  const bool direct = out.tensors[0].dtype == DType::kF32 && !in_place;  // clearing loses what lies there
  Piece scratch;
  if (!direct) {
    RowFormat format = out.format();
    format.dtype = DType::kF32;
    scratch = make_piece(format, out.tokens, out.heads, pool);
  }
  const Piece& sum = direct ? out : scratch;
  clear_piece(sum, {&all, 1}, stream);
  for (const Piece* part : parts) accumulate(sum, *part, stream);
  if (direct) return;
  for (int i = 0; i < out.tensor_count(); ++i)
    apply(RowOperation::kCopy, out.rows(i), sum.rows(i), {&all, 1}, stream);
}

void Sums::take(Operand what, const Piece& out, const Pool& pool, Stream stream) {
  read(what, out, pool, stream);
  for (size_t i = 0; i < pieces_.size();) {
    if (pieces_[i].what == what && meet(pieces_[i], out)) {
      remove(i, out.tokens, out.heads);  // appends what is left of it at the end
    } else {
      ++i;
    }
  }
}

std::optional<Piece> Sums::lend(Operand what, const Ranges& tokens, Range heads, DType dtype) {
  const Ranges set = set_of(tokens);
  size_t only = pieces_.size();
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const Piece& piece = pieces_[i];
    if (piece.what != what || !share_heads(piece.heads, heads) || !overlap(set_of(piece.tokens), set))
      continue;
    if (only != pieces_.size()) return std::nullopt;
    only = i;
  }
  if (only == pieces_.size() || pieces_[only].heads != heads || pieces_[only].tensors[0].dtype != dtype)
    return std::nullopt;
  const int64_t rows = count(tokens), begin = position_of(tokens, pieces_[only].tokens);
  if (begin < 0) return std::nullopt;
  if (rows == count(pieces_[only].tokens)) {
    Piece whole = std::move(pieces_[only]);
    pieces_.erase(pieces_.begin() + static_cast<std::ptrdiff_t>(only));
    return whole;
  }
  Piece view = with_rows(pieces_[only], begin, begin + rows);
  remove(only, tokens, heads);
  return view;
}

void Sums::remove(size_t number, const Ranges& tokens, Range heads) {
  Piece whole = std::move(pieces_[number]);
  pieces_.erase(pieces_.begin() + static_cast<std::ptrdiff_t>(number));
  const Range shared = common(whole.heads, heads);
  bool left = false;
  const auto keep = [&](Piece view) {
    pieces_.push_back(std::move(view));
    left = true;
  };
  if (whole.heads.begin < shared.begin) keep(with_heads(whole, {whole.heads.begin, shared.begin}));
  if (shared.end < whole.heads.end) keep(with_heads(whole, {shared.end, whole.heads.end}));
  const Piece part = with_heads(whole, shared);
  std::vector<Range> gone;  // packed positions
  for_each_common(whole.tokens, tokens, [&](int64_t position, int64_t, int64_t rows) {
    gone.push_back({position, position + rows});
  });
  const Range all{0, count(whole.tokens)};
  for (const Range& rest : difference(Ranges{all}, set_of(gone))) keep(with_rows(part, rest.begin, rest.end));
  if (left && whole.memory.data() != nullptr) lent_.push_back(std::move(whole.memory));
}

std::optional<Piece> Sums::take_part(Operand what, const Ranges& tokens, Range heads) {
  for (auto piece = pieces_.begin(); piece != pieces_.end(); ++piece) {
    if (piece->what != what || piece->heads != heads || piece->tokens != tokens ||
        piece->tensors[0].dtype != DType::kF32 || piece->own)
      continue;
    Piece part = std::move(*piece);
    pieces_.erase(piece);
    return part;
  }
  return std::nullopt;
}

bool Sums::lies_at(const Piece& place) const {
  return std::any_of(pieces_.begin(), pieces_.end(), [&](const Piece& piece) {
    return piece.what == place.what && piece.heads == place.heads && piece.tokens == place.tokens &&
           piece.tensors[0].data == place.tensors[0].data;
  });
}

}  // namespace longspan
