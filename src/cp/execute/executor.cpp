#include "cp/execute/executor.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "cp/execute/device_clock.h"
#include "cp/execute/pieces.h"
#include "cp/execute/rank_plan.h"
#include "cp/schedule/ranges.h"

namespace longspan {
namespace {

constexpr int32_t kForever = std::numeric_limits<int32_t>::max();

bool dense(const TensorView& view) {
  return view.head_stride == view.head_dim && view.token_stride == view.heads * view.head_dim;
}

}  // namespace

class Executor::Impl {
 public:
  Impl(const Schedule& schedule, const Problem& problem, const Kernel& kernel, const Device& device,
       Communicator& communicator, Direction until, std::shared_ptr<Scratch> scratch, Timing timing)
      : schedule_(schedule),
        problem_(problem),
        kernel_(kernel),
        device_(device),
        communicator_(communicator),
        plan_(schedule, problem_, kernel, device, communicator, until),
        clock_(timing == Timing::kOn ? DeviceClock::make(device) : nullptr),
        scratch_(scratch ? std::move(scratch) : std::make_shared<Scratch>(device, BufferPool::Use::kOwn)),
        pool_(scratch_->pool) {
    const size_t bytes = plan_.workspace_bytes();
    if (bytes > scratch_->workspace.bytes()) scratch_->workspace = Buffer(bytes, device_);
  }

  size_t kept_bytes() const { return plan_.kept().bytes; }

  void forward(const ForwardArgs& args, void* kept, Stream stream) {
    begin(Direction::kForward, kept);
    add_own(Operand::kQ, args.q);
    add_own(Operand::kKV, args.k, args.v);
    own_results_.push_back(own_piece(Operand::kO, args.o));
    own_results_.back().lse = args.lse;
    run(Direction::kForward, stream);
    end(kept != nullptr ? kept_bytes() : 0, stream);
  }

  void backward(const BackwardArgs& args, const void* kept, Stream stream) {
    LONGSPAN_CHECK_INPUT(plan_.no_backward().empty(), "{} cannot attend backward for rank {}: {}",
                         kernel_.name(), communicator_.rank(), plan_.no_backward());
    LONGSPAN_CHECK(kept != nullptr || kept_bytes() == 0,
                   "a backward pass without what its forward pass kept");
    begin(Direction::kBackward, nullptr);
    add_own(Operand::kQ, args.q);
    add_own(Operand::kKV, args.k, args.v);
    for (const Kept::Place& place : plan_.kept().places) {
      Piece piece = kept_piece(const_cast<void*>(kept), place);
      piece.copy_bytes = place.copy_bytes;
      held_.add(std::move(piece));
    }
    Piece dout = own_piece(Operand::kDo, args.dout);
    if (problem_.lse_gradient) {
      dout.lse = const_cast<float*>(args.dlse);
      if (dout.lse == nullptr) dout = with_zeros_for_lse(std::move(dout), stream);
    }
    held_.add(std::move(dout));
    Piece o = own_piece(Operand::kO, args.o);
    o.lse = const_cast<float*>(args.lse);
    held_.add(std::move(o));
    own_results_.push_back(own_piece(Operand::kDq, args.dq));
    own_results_.push_back(own_piece(Operand::kDkv, args.dk, args.dv));
    run(Direction::kBackward, stream);
    end(kept_bytes(), stream);
  }

  const PassTimes& times() {
    for (const Span& span : spans_) *span.total_s += clock_->seconds(span.begin, span.end);
    spans_.clear();
    return times_;
  }

  void finish(Stream stream) { communicator_.synchronize(stream); }

  size_t plan_bytes() const { return plan_.bytes() + workspace().bytes(); }

 private:
  using Pass = RankPlan::Pass;

  // A section of the stream. Its time is added to one of times_ when the times are requested.
  struct Span {
    double* total_s;
    int begin, end;
  };
  class Stopwatch {
   public:
    Stopwatch(Impl& impl, double& total_s, Stream stream)
        : impl_(impl),
          total_s_(total_s),
          stream_(stream),
          begin_(impl.clock_ ? impl.clock_->mark(stream) : 0) {}
    ~Stopwatch() {
      if (!impl_.clock_) return;
      try {
        impl_.spans_.push_back({&total_s_, begin_, impl_.clock_->mark(stream_)});
      } catch (const std::exception&) {  // the next call to a device that failed reports it
      }
    }

   private:
    Impl& impl_;
    double& total_s_;
    const Stream stream_;
    const int begin_;
  };

  // A transfer in progress, with the pieces that it writes and reads.
  struct Posted {
    std::unique_ptr<Transfer> transfer;
    std::vector<Piece> arriving;
    std::vector<int> sources;  // the source rank of each result
    std::vector<Piece> leaving;
    bool stays = false;  // the sent data is the rank's own and stays in place until the end of the pass
  };

  const Buffer& workspace() const { return scratch_->workspace; }
  const Ranges& owned() const { return schedule_.owned[static_cast<size_t>(communicator_.rank())]; }

  // `kept`: where the pass puts what it keeps; null: nowhere.
  void begin(Direction direction, void* kept) {
    times_ = {};
    spans_.clear();
    if (clock_) clock_->reset();
    // A forward pass that keeps nothing takes other buffers of the pool.
    const bool forward = direction == Direction::kForward;
    pool_->begin_pass(forward ? (kept == nullptr ? 0 : 1) : 2);
    kept_ = kept;
    held_.clear();  // a pass that threw leaves its pieces behind
    sums_.clear();
    own_results_.clear();
  }

  void end(size_t kept_bytes, Stream stream) {
    for (const Piece& own : own_results_) finish(own, stream);
    times_.held_bytes = static_cast<int64_t>(pool_->held_bytes() + kept_bytes);
    sums_.clear();
    held_.clear();
  }

  Piece kept_piece(void* kept, const Kept::Place& place) const {
    const Region& region = schedule_.regions[place.region];
    Piece piece = piece_at(static_cast<char*>(kept) + place.offset, device_.kind,
                           {place.what, problem_.dtype, problem_}, region.tokens, region.heads);
    piece.last_use = kForever;
    return piece;
  }

  Piece own_piece(Operand what, const TensorView& first, const TensorView& second = {}) const {
    Piece piece;
    piece.what = what;
    piece.kind = device_.kind;
    piece.own = true;
    piece.tokens = owned();
    piece.heads = {0, first.heads};
    piece.tensors[0] = first;
    piece.tensors[1] = second;
    piece.lse_stride = count(owned());
    piece.last_use = kForever;
    return piece;
  }

  Piece with_zeros_for_lse(Piece piece, Stream stream) const {
    piece = with_room_for_lse(std::move(piece), pool_);
    const int64_t floats = count(piece.tokens) * piece.heads.size();
    const RowSpan all{0, 0, floats};
    const TensorView view = TensorView::contiguous(piece.lse, DType::kF32, floats, 1, 1);
    apply(RowOperation::kClear, {piece.kind, view}, {}, {&all, 1}, stream);
    return piece;
  }

  void add_own(Operand what, const TensorView& first, const TensorView& second = {}) {
    held_.add(own_piece(what, first, second));
  }

  void run(Direction direction, Stream stream) {
    const Pass& pass = plan_.pass(direction);
    const std::vector<RankRound>& rounds = pass.rounds;
    posted_copies_ = 0;
    sent_.clear();
    Posted next = post_copies(pass, 0, stream), results;
    for (size_t i = 0; i < rounds.size(); ++i) {
      Posted now = std::exchange(next, {});
      wait(now, stream);
      for (Piece& piece : now.arriving) held_.add(std::move(piece));
      held_.drop_before(static_cast<int32_t>(i));  // including copies used only for this round's sends
      if (i + 1 < rounds.size()) next = post_copies(pass, i + 1, stream);
      int64_t copies = held_.copy_bytes();
      for (const Piece& piece : next.arriving) copies += piece.copy_bytes;
      times_.peak_copy_bytes = std::max(times_.peak_copy_bytes, copies);
      for (size_t a = 0; a < rounds[i].attend.size(); ++a) {
        if (direction == Direction::kForward) {
          attend_forward(rounds[i].attend[a], pass.results[i][a], pass.rooms[i], a, stream);
        } else {
          attend_backward(rounds[i].attend[a], pass.results[i][a], pass.rooms[i], a, stream);
        }
      }
      collect(results, stream);
      if (direction == Direction::kForward) save_final(rounds[i], stream);
      results = post_results(pass, i, stream);
    }
    collect(results, stream);
    if (!sent_.empty()) {
      const Stopwatch watch(*this, times_.exposed_s, stream);
      for (const auto& transfer : sent_) transfer->wait(stream);
      sent_.clear();
    }
  }

  void wait(Posted& posted, Stream stream) {
    if (!posted.transfer) return;
    const Stopwatch watch(*this, times_.exposed_s, stream);
    if (posted.stays) {
      posted.transfer->arrive(stream);
      sent_.push_back(std::move(posted.transfer));
    } else {
      posted.transfer->wait(stream);
    }
    posted.transfer.reset();
    posted.leaving.clear();
  }

  void add_messages(std::vector<Message>& messages, int peer, const Piece& piece) {
    for (int i = 0; i < piece.tensor_count(); ++i) {
      const TensorView& tensor = piece.tensors[i];
      Message message{peer, tensor.data, tensor.bytes(), 0, 0};
      if (!dense(tensor)) {
        message.row_bytes = static_cast<size_t>(tensor.heads * tensor.head_dim) * size_of(tensor.dtype);
        message.stride = static_cast<size_t>(tensor.token_stride) * size_of(tensor.dtype);
      }
      messages.push_back(message);
    }
    if (piece.lse == nullptr) return;
    const auto heads = static_cast<size_t>(piece.heads.size());
    const size_t row_bytes = static_cast<size_t>(count(piece.tokens)) * 4;
    const size_t stride = static_cast<size_t>(piece.lse_stride) * 4;
    if (piece.what == Operand::kDo && !communicator_.takes_rows()) {
      // It may have gaps at either end, where do lands beside other rows.
      for (size_t head = 0; head < heads; ++head)
        messages.push_back({peer, reinterpret_cast<char*>(piece.lse) + head * stride, row_bytes});
    } else if (stride == row_bytes) {
      messages.push_back({peer, piece.lse, row_bytes * heads});
    } else {
      messages.push_back({peer, piece.lse, row_bytes * heads, row_bytes, stride});
    }
  }

  Posted start(Posted posted, const std::vector<Message>& sends, const std::vector<Message>& receives,
               Meanwhile meanwhile, Channel channel, Stream stream) {
    for (const Message& send : sends) {
      if (send.peer != communicator_.rank()) times_.sent_bytes += static_cast<int64_t>(send.bytes);
    }
    if (!sends.empty() || !receives.empty())
      posted.transfer = communicator_.exchange(sends, receives, stream, meanwhile, channel);
    return posted;
  }

  Posted post_copies(const Pass& pass, size_t number, Stream stream) {
    const Stopwatch watch(*this, times_.reorder_s, stream);
    Posted posted;
    posted.stays = true;
    std::vector<Message> sends, receives;
    std::vector<RowPair> packing;  // batched, since they are many and small
    const Rooms& rooms = pass.rooms[number];
    for (size_t i = 0; i < pass.rounds[number].copies_out.size(); ++i) {
      const Move& move = pass.rounds[number].copies_out[i];
      const Region& region = schedule_.regions[move.region];
      Piece piece =
          held_.read(move.what, region.tokens, region.heads, pool_, stream, rooms.copies_out[i], &packing);
      if (!sendable(piece)) piece = packed(piece, stream, rooms.copies_out[i], packing);
      add_messages(sends, move.dst, piece);
      posted.stays = posted.stays && piece.own;
      posted.leaving.push_back(std::move(piece));
    }
    // Copies that are read together arrive in one piece, next to the rank's own rows.
    const std::vector<Move>& copies = pass.rounds[number].copies_in;
    std::vector<std::pair<size_t, int64_t>> places(copies.size(), {0, -1});  // piece, first row in it
    for (const Landing& landing : pass.landings[number]) {
      const Region& region = schedule_.regions[landing.region];
      for (const Landing::Arrival& arrival : landing.arrivals)
        places[arrival.move] = {posted.arriving.size(), arrival.row};
      posted.arriving.push_back(arrival(pass, number, posted.arriving.size(), landing.what, region));
      if (!landing.with_own) continue;
      const auto own_rows = own_rows_as_messages(posted.arriving.back());
      if (own_rows.empty()) held_.copy_own(posted.arriving.back(), stream, &packing);
      for (const auto& [to, from] : own_rows) {
        add_messages(sends, communicator_.rank(), from);
        add_messages(receives, communicator_.rank(), to);
      }
    }
    for (size_t i = 0; i < copies.size(); ++i) {
      const Region& region = schedule_.regions[copies[i].region];
      auto [place, row] = places[i];
      if (row < 0) {
        place = posted.arriving.size();
        posted.arriving.push_back(arrival(pass, number, posted.arriving.size(), copies[i].what, region));
        row = 0;
      }
      Piece& piece = posted.arriving[place];
      const int32_t last = pass.last_uses[posted_copies_++];
      piece.last_use =
          std::max(piece.last_use, last < static_cast<int32_t>(pass.rounds.size()) ? last : kForever);
      const size_t before = receives.size();
      add_messages(receives, copies[i].src, with_rows(piece, row, row + count(region.tokens)));
      for (size_t m = before; m < receives.size(); ++m)
        piece.copy_bytes += static_cast<int64_t>(receives[m].bytes);
    }
    if (!packing.empty()) apply_pairs(RowOperation::kCopy, device_.kind, packing, stream);
    const bool computes = number > 0 && !pass.rounds[number - 1].attend.empty();
    return start(std::move(posted), sends, receives, computes ? Meanwhile::kComputes : Meanwhile::kWaits,
                 Channel::kInputs, stream);
  }

  // The destination of the arrival `index` of a round: in the kept memory, or in a buffer of the pool.
  Piece arrival(const Pass& pass, size_t round, size_t index, Operand what, const Region& region) const {
    const Kept& kept = plan_.kept();
    if (kept_ != nullptr && kept.arriving[round][index] >= 0)
      return kept_piece(kept_, kept.places[static_cast<size_t>(kept.arriving[round][index])]);
    return make_piece({what, problem_.dtype, problem_}, region.tokens, region.heads, pool_,
                      pass.rooms[round].arriving[index]);
  }

  // Whether its tensors, k and v each, can be messages as they lie.
  bool sendable(const Piece& piece) const {
    return std::all_of(piece.tensors, piece.tensors + piece.tensor_count(), [&](const TensorView& tensor) {
      return dense(tensor) || (communicator_.takes_rows() && tensor.head_stride == tensor.head_dim);
    });
  }

  // The rows of the piece that the rank owns, and where they are, if it can receive them from itself with the
  // rows of others, which avoids a separate copy. Else empty.
  std::vector<std::pair<Piece, Piece>> own_rows_as_messages(const Piece& piece) const {
    if (!communicator_.takes_rows()) return {};
    auto rows = held_.own_rows(piece);
    const bool all = std::all_of(rows.begin(), rows.end(), [&](const auto& r) { return sendable(r.second); });
    if (!all) rows.clear();
    return rows;
  }

  Piece packed(const Piece& piece, Stream stream, size_t room, std::vector<RowPair>& copies) const {
    Piece copy = make_piece(piece.format(), piece.tokens, piece.heads, pool_, room);
    const RowSpan all{0, 0, count(piece.tokens)};
    copy_spans(copy, piece, {&all, 1}, stream, &copies);
    return copy;
  }

  Posted post_results(const Pass& pass, size_t number, Stream stream) {
    const Stopwatch watch(*this, times_.merge_s, stream);
    const RankRound& round = pass.rounds[number];
    Posted posted;
    std::vector<Message> sends, receives;
    for (size_t i = 0; i < round.given.size(); ++i) {
      const Move& move = round.given[i];
      const Region& region = schedule_.regions[move.region];
      Piece piece;
      if (auto lent = sums_.lend(move.what, region.tokens, region.heads, dtype_of(move))) {
        piece = std::move(*lent);
        if (!communicator_.takes_rows()) piece = with_packed_lse(std::move(piece), pool_, stream);
      } else {
        piece = result_piece(move, pass.rooms[number].given[i]);
        sums_.take(move.what, piece, pool_, stream);
      }
      add_messages(sends, move.dst, piece);
      posted.leaving.push_back(std::move(piece));
    }
    for (size_t i = 0; i < round.taken.size(); ++i) {
      const Move& move = round.taken[i];
      Piece piece = pass.in_place[number][i] ? own_result(move) : Piece();
      if (piece.tensors[0].data == nullptr) piece = result_piece(move, pass.rooms[number].taken[i]);
      add_messages(receives, move.src, piece);
      posted.arriving.push_back(std::move(piece));
      posted.sources.push_back(move.src);
    }
    bool computes = false;
    for (size_t later = number + 1; later < pass.rounds.size(); ++later)
      computes = computes || !pass.rounds[later].attend.empty();
    return start(std::move(posted), sends, receives, computes ? Meanwhile::kComputes : Meanwhile::kWaits,
                 Channel::kResults, stream);
  }

  // The destination of a result of own tokens in the caller's tensors; empty if its rows cannot be received
  // there.
  Piece own_result(const Move& move) const {
    for (const Piece& own : own_results_) {
      if (own.what != move.what) continue;
      Piece view = with_heads(own, schedule_.regions[move.region].heads);
      if (sendable(view)) return view;
    }
    return {};
  }

  DType dtype_of(const Move& result) const { return result.fp32 ? DType::kF32 : problem_.dtype; }

  Piece result_piece(const Move& move, size_t room) const {
    const Region& region = schedule_.regions[move.region];
    return make_piece({move.what, dtype_of(move), problem_}, region.tokens, region.heads, pool_, room);
  }

  void collect(Posted& results, Stream stream) {
    wait(results, stream);
    if (results.arriving.empty()) return;
    const Stopwatch watch(*this, times_.merge_s, stream);
    std::map<int, std::vector<Piece>> gradients;  // by source: rows of one source are distinct
    for (size_t i = 0; i < results.arriving.size(); ++i) {
      Piece& piece = results.arriving[i];
      if (piece.what == Operand::kO || piece.tensors[0].dtype != DType::kF32) {
        sums_.add(std::move(piece), stream);
      } else {
        gradients[results.sources[i]].push_back(std::move(piece));
      }
    }
    for (auto& [source, pieces] : gradients) sums_.add_all(std::move(pieces), stream);
    results.arriving.clear();
  }

  // The backward pass needs o and lse of the rows that this rank attends for other owners. Where they are
  // final on this rank, keep them as o leaves.
  void save_final(const RankRound& round, Stream stream) {
    if (kept_ == nullptr) return;
    const auto leaves = [&](const Kept::Place& place) {
      const Ranges rows = set_of(schedule_.regions[place.region].tokens);
      return place.what == Operand::kO &&
             std::any_of(round.given.begin(), round.given.end(), [&](const Move& move) {
               return move.what == Operand::kO && !move.fp32 &&
                      overlap(set_of(schedule_.regions[move.region].tokens), rows);
             });
    };
    std::optional<Stopwatch> watch;
    for (const Kept::Place& place : plan_.kept().places) {
      if (!leaves(place)) continue;
      if (!watch) watch.emplace(*this, times_.merge_s, stream);
      const Piece piece = kept_piece(kept_, place);
      if (!sums_.lies_at(piece)) sums_.read(Operand::kO, piece, pool_, stream);
    }
  }

  // The destination of an attend's result. If the result is complete, this is the caller's tensor or the
  // place where it is kept, else a part in f32.
  Piece target(Operand what, int32_t number, bool complete, size_t room) {
    const Region& region = schedule_.regions[number];
    if (complete) {
      for (const Piece& own : own_results_) {
        if (own.what != what || !inside(region.heads, own.heads)) continue;
        const int64_t row = position_of(region.tokens, own.tokens);
        if (row >= 0) return with_rows(with_heads(own, region.heads), row, row + count(region.tokens));
      }
      if (what == Operand::kO && kept_ != nullptr) {
        if (const Kept::Place* place = plan_.kept().of_rows(number)) return kept_piece(kept_, *place);
      }
    }
    return make_piece({what, complete ? problem_.dtype : DType::kF32, problem_}, region.tokens, region.heads,
                      pool_, complete ? 0 : room);
  }

  void attend_forward(const Attend& attend, const Results& results, const Rooms& rooms, size_t number,
                      Stream stream) {
    const Region &q = schedule_.regions[attend.q], &kv = schedule_.regions[attend.kv];
    const Piece queries = read(Operand::kQ, q, stream), keys = read(Operand::kKV, kv, stream);
    // If the kernel can merge parts, it merges the new result with that of earlier attends.
    std::optional<Piece> before;
    if (kernel_.merges_parts() && !results.rows.first)
      before = sums_.take_part(Operand::kO, q.tokens, q.heads);
    const bool completes = results.rows.complete && results.rows.last && (results.rows.first || before);
    const bool in_place = before && !completes;
    Piece part = in_place ? std::move(*before) : target(Operand::kO, attend.q, completes, rooms.rows[number]);
    const Piece place = with_heads(part, part.heads);
    if (part.lse_stride != count(q.tokens)) part = with_room_for_lse(std::move(part), pool_);
    {
      const Stopwatch watch(*this, times_.compute_s, stream);
      ForwardArgs args{queries.tensors[0], keys.tensors[0], keys.tensors[1],
                       part.tensors[0],    part.lse,        workspace().data()};
      if (before) {
        args.part_o = in_place ? part.tensors[0] : before->tensors[0];
        args.part_lse = in_place ? part.lse : before->lse;
      }
      plan_.kernel_plan(attend).forward(args, stream);
    }
    const Stopwatch watch(*this, times_.merge_s, stream);
    if (part.lse != place.lse) {
      copy_lse(place, part, stream);
      part = with_heads(place, place.heads);
    }
    sums_.add(std::move(part), stream);
  }

  void attend_backward(const Attend& attend, const Results& results, const Rooms& rooms, size_t number,
                       Stream stream) {
    const Region &q = schedule_.regions[attend.q], &kv = schedule_.regions[attend.kv];
    const Piece queries = read(Operand::kQ, q, stream), keys = read(Operand::kKV, kv, stream);
    const Piece dout = with_packed_lse(read(Operand::kDo, q, stream), pool_, stream);
    const Piece o = with_packed_lse(read(Operand::kO, q, stream), pool_, stream);
    Piece dq = target(Operand::kDq, attend.q, results.rows.alone(), rooms.rows[number]);
    Piece dkv = target(Operand::kDkv, attend.kv, results.keys.alone(), rooms.keys[number]);
    {
      const Stopwatch watch(*this, times_.compute_s, stream);
      plan_.kernel_plan(attend).backward(
          {queries.tensors[0], keys.tensors[0], keys.tensors[1], o.tensors[0], dout.tensors[0], o.lse,
           dq.tensors[0], dkv.tensors[0], dkv.tensors[1], workspace().data(), workspace().bytes(), dout.lse},
          stream);
    }
    const Stopwatch watch(*this, times_.merge_s, stream);
    for (Piece* piece : {&dq, &dkv}) sums_.add(std::move(*piece), stream);
  }

  Piece read(Operand what, const Region& region, Stream stream) {
    const Stopwatch watch(*this, times_.reorder_s, stream);
    return held_.read(what, region.tokens, region.heads, pool_, stream);
  }

  void finish(const Piece& out, Stream stream) {
    const Stopwatch watch(*this, times_.merge_s, stream);
    sums_.read(out.what, out, pool_, stream);
  }

  const Schedule& schedule_;
  const Problem problem_;
  const Kernel& kernel_;
  const Device device_;
  Communicator& communicator_;
  const RankPlan plan_;
  size_t posted_copies_ = 0;                  // in this pass
  const std::unique_ptr<DeviceClock> clock_;  // null: nobody wants times
  const std::shared_ptr<Scratch> scratch_;
  const Pool pool_;
  // Of the pass that runs.
  void* kept_ = nullptr;
  Holdings held_;
  Sums sums_;
  std::vector<Piece> own_results_;  // destinations
  PassTimes times_;
  std::vector<Span> spans_;
  std::vector<std::unique_ptr<Transfer>> sent_;  // transfers whose data others may still be reading
};

Executor::Executor(const Schedule& schedule, const Problem& problem, const Kernel& kernel,
                   const Device& device, Communicator& communicator, Direction until,
                   std::shared_ptr<Scratch> scratch, Timing timing)
    : impl_(std::make_unique<Impl>(schedule, problem, kernel, device, communicator, until, std::move(scratch),
                                   timing)) {}
Executor::~Executor() = default;
size_t Executor::kept_bytes() const {
  return impl_->kept_bytes();
}
void Executor::forward(const ForwardArgs& args, void* kept, Stream stream) {
  impl_->forward(args, kept, stream);
}
void Executor::backward(const BackwardArgs& args, const void* kept, Stream stream) {
  impl_->backward(args, kept, stream);
}
void Executor::finish(Stream stream) {
  impl_->finish(stream);
}
size_t Executor::plan_bytes() const {
  return impl_->plan_bytes();
}
const PassTimes& Executor::times() const {
  return impl_->times();
}

}  // namespace longspan
