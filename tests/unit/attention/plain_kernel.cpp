#include "unit/attention/plain_kernel.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "attention/element.h"
#include "base/error.h"
#include "base/parallel.h"

namespace longspan {
namespace {

constexpr int64_t kTile = 16;
// A tensor's elements as floats, [tokens, heads, head_dim].
struct Loaded {
  int64_t heads, dim;
  std::vector<float> data;
  explicit Loaded(const TensorView& tensor)
      : heads(tensor.heads), dim(tensor.head_dim), data(tensor.elements()) {
    with_element_type(tensor.dtype, [&](auto type) {
      for (int64_t t = 0; t < tensor.tokens; ++t) {
        for (int64_t h = 0; h < heads; ++h) {
          const auto* row = tensor.row<decltype(type)>(t, h);
          for (int64_t d = 0; d < dim; ++d)
            data[(t * heads + h) * dim + d] = static_cast<float>(to_double(row[d]));
        }
      }
    });
  }
  const float* row(int64_t token, int64_t head) const { return &data[(token * heads + head) * dim]; }
};

constexpr float kNone = -std::numeric_limits<float>::infinity();

class PlainPlan final : public Plan {
 public:
  PlainPlan(const Problem& problem, const PlainOptions& options) : problem_(problem), options_(options) {}
  size_t workspace_bytes(Direction) const override { return sizeof(float); }
  size_t plan_bytes() const override { return 0; }

  void forward(const ForwardArgs& args, Stream) override {
    LONGSPAN_CHECK(!is(Fault::kThrows), "the kernel gave up");
    ++runs_;
    const Loaded q(args.q), k(args.k), v(args.v);
    parallel_for(problem_.heads_q, [&](int64_t h, int) {
      for (int64_t row = 0; row < problem_.tokens_q; ++row) forward_row(args, q, k, v, h, row);
    });
  }

  void backward(const BackwardArgs& args, Stream) override {
    ++runs_;
    parallel_for(problem_.heads_kv, [&](int64_t h, int) { backward_head(args, h); });
  }

 private:
  bool is(Fault fault) const { return options_.fault == fault; }
  bool here(Fault fault, int64_t head, int64_t row) const {
    return is(fault) && head == options_.head && row == options_.row;
  }

  // The keys that the row attends to: the visible ones, changed by the fault.
  std::vector<char> keys(int64_t head, int64_t row) const {
    const int64_t n = problem_.tokens_kv;
    int64_t kv_head = problem_.kv_head_of(head);
    if (is(Fault::kHeadMaskSwapped)) kv_head = (kv_head + 1) % problem_.heads_kv;
    std::vector<char> seen(n, is(Fault::kMaskIgnored));
    for (const Range& range : problem_.mask_of_kv_head(kv_head).visible_keys(row)) {
      std::fill(seen.begin() + range.begin, seen.begin() + range.end, 1);
    }
    if (here(Fault::kKeyMissing, head, row)) {
      const auto last = std::find(seen.rbegin(), seen.rend(), 1);
      if (last != seen.rend()) *last = 0;
    } else if (here(Fault::kKeyTooMany, head, row)) {
      const auto hidden = std::find(seen.begin(), seen.end(), 0);
      if (hidden != seen.end()) *hidden = 1;
    } else if (here(Fault::kRowShifted, head, row)) {
      std::rotate(seen.begin(), seen.end() - 1, seen.end());
    } else if (is(Fault::kTileDropped) && head == options_.head && row / kTile == options_.row / kTile) {
      const int64_t tile = options_.key / kTile * kTile;
      std::fill(seen.begin() + tile, seen.begin() + std::min(n, tile + kTile), 0);
    }
    return seen;
  }

  float dot(const float* a, const float* b) const {
    float sum = 0;
    for (int64_t d = 0; d < problem_.head_dim; ++d) sum += a[d] * b[d];
    return sum;
  }

  float scale() const { return problem_.softmax_scale() * (is(Fault::kWrongScale) ? 1.01f : 1.f); }

  float score(const float* q, const float* k) const {
    const float exact = scale() * dot(q, k);
    if (!is(Fault::kRoundedScores)) return exact;
    return std::bit_cast<float>((std::bit_cast<uint32_t>(exact) + 0x40u) & ~0x7fu);
  }

  // Weights are rounded to the inputs' dtype before they multiply, as on tensor cores.
  float rounded(float x) const { return static_cast<float>(rounded_to(problem_.dtype, x)); }

  void forward_row(const ForwardArgs& args, const Loaded& q, const Loaded& k, const Loaded& v, int64_t h,
                   int64_t row) const {
    int64_t kv_head = problem_.kv_head_of(h);
    if (is(Fault::kSwappedHead)) kv_head = (kv_head + 1) % problem_.heads_kv;
    const std::vector<char> seen = keys(h, row);
    float largest = kNone, sum = 0;
    std::vector<float> o(problem_.head_dim, 0);
    for (int64_t tile = 0; tile < problem_.tokens_kv; tile += kTile) {
      const int64_t end = std::min(problem_.tokens_kv, tile + kTile);
      std::vector<float> s(kTile, kNone);
      float tile_largest = largest;
      for (int64_t j = tile; j < end; ++j) {
        if (!seen[j]) continue;
        s[j - tile] = score(q.row(row, h), k.row(j, kv_head));
        tile_largest = std::max(tile_largest, s[j - tile]);
      }
      if (tile_largest == kNone) continue;
      const float keep = std::exp(largest - tile_largest);
      sum *= keep;
      if (!is(Fault::kNoRescale)) {
        for (float& x : o) x *= keep;
      }
      largest = tile_largest;
      for (int64_t j = tile; j < end; ++j) {
        const float p = std::exp(s[j - tile] - largest);
        sum += p;
        const float weight = rounded(p);
        for (int64_t d = 0; d < problem_.head_dim; ++d) o[d] += weight * v.row(j, kv_head)[d];
      }
    }
    const bool empty = sum == 0;
    float lse = empty ? kNone : largest + std::log(sum);
    for (float& x : o) x = empty ? 0 : x / sum;
    if (empty && is(Fault::kEmptyRowNotZero)) o[0] = 1;
    if (empty && is(Fault::kEmptyRowLseZero)) lse = 0;
    if (is(Fault::kLseOfBase2)) lse /= std::log(2.f);
    if (here(Fault::kLseOff, h, row)) lse += 1e-4f;
    if (here(Fault::kNan, h, row)) o[1] = NAN;
    if (here(Fault::kInfinite, h, row)) o[1] = INFINITY;
    if (here(Fault::kOneElementOff, h, row)) o[1] += 0.02f;
    if (is(Fault::kUsesWorkspace)) o[0] += *static_cast<float*>(args.workspace);
    if (is(Fault::kFlaky) && runs_ % 2 == 0) o[0] = std::nextafter(o[0], 1e9f);
    if (!here(Fault::kUnwrittenRow, h, row)) {
      for (int64_t d = 0; d < problem_.head_dim; ++d) set_element(args.o, row, h, d, o[d]);
    }
    if (!here(Fault::kUnwrittenLse, h, row)) args.lse[h * problem_.tokens_q + row] = lse;
  }

  void backward_head(const BackwardArgs& args, int64_t kv_head) const {
    const int64_t dim = problem_.head_dim, n = problem_.tokens_kv, group = problem_.group_size();
    const Loaded q(args.q), k(args.k), v(args.v), o(args.o), dout(args.dout);
    std::vector<float> dk(n * dim, 0), dv(n * dim, 0), dq(dim);
    const int64_t last = is(Fault::kGroupNotSummed) ? 1 : group;
    for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
      const bool shared = h - kv_head * group < last;
      for (int64_t i = 0; i < problem_.tokens_q; ++i) {
        std::fill(dq.begin(), dq.end(), 0);
        const float lse = args.lse[h * problem_.tokens_q + i];
        float delta = is(Fault::kNoDelta) ? 0 : dot(o.row(i, h), dout.row(i, h));
        if (args.dlse != nullptr && !is(Fault::kNoLseGradient)) delta -= args.dlse[h * problem_.tokens_q + i];
        const std::vector<char> seen = keys(h, i);
        const int64_t last_key = std::find(seen.rbegin(), seen.rend(), 1).base() - seen.begin() - 1;
        for (int64_t j = 0; j < n; ++j) {
          if (!seen[j]) continue;
          const float p = std::exp(score(q.row(i, h), k.row(j, kv_head)) - lse);
          const float ds = rounded(p * (dot(dout.row(i, h), v.row(j, kv_head)) - delta));
          const float weight = rounded(p);
          const bool fault_here = h == options_.head && i == options_.row && j == last_key;
          for (int64_t d = 0; d < dim; ++d) {
            if (!(is(Fault::kDqKeyMissing) && fault_here)) {
              dq[d] += ds * k.row(j, kv_head)[d];
            }
            if (shared && !(is(Fault::kDkRowMissing) && fault_here)) {
              dk[j * dim + d] += ds * q.row(i, h)[d];
            }
            if (shared && !(is(Fault::kDvRowMissing) && fault_here)) {
              dv[j * dim + d] += weight * dout.row(i, h)[d];
            }
          }
        }
        if (here(Fault::kUnwrittenDq, h, i)) continue;
        for (int64_t d = 0; d < dim; ++d) {
          const double before = is(Fault::kAccumulatesIntoOutput) ? get_element(args.dq, i, h, d) : 0;
          set_element(args.dq, i, h, d, before + double{problem_.softmax_scale() * dq[d]});
        }
      }
    }
    const int64_t out_head = is(Fault::kDkSwappedHead) ? (kv_head + 1) % problem_.heads_kv : kv_head;
    const int64_t fault_head = problem_.kv_head_of(options_.head);
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t d = 0; d < dim; ++d) {
        float x = dk[j * dim + d] * (is(Fault::kDkUnscaled) ? 1 : problem_.softmax_scale());
        if (is(Fault::kNanInDk) && j == options_.key && kv_head == fault_head && d == 2) x = NAN;
        if (is(Fault::kUnseenKeyNotZero) && j == options_.key && kv_head == fault_head) x += 1;
        set_element(args.dk, j, out_head, d, x);
        if (is(Fault::kUnwrittenDv) && j == options_.key && kv_head == fault_head) continue;
        set_element(args.dv, j, kv_head, d, dv[j * dim + d]);
      }
    }
  }

  Problem problem_;
  PlainOptions options_;
  int runs_ = 0;
};

}  // namespace

Support PlainKernel::supports(const Problem& problem, Direction direction, const Device& device) const {
  if (device.kind != DeviceKind::kCpu) return {"runs on the CPU only"};
  if (problem.head_dim > 64) return {"needs head_dim up to 64"};
  if (options_.forward_only && direction == Direction::kBackward) return {"has no backward pass"};
  return {};
}

std::unique_ptr<Plan> PlainKernel::plan(const Problem& problem, const Device&) const {
  return std::make_unique<PlainPlan>(problem, options_);
}

}  // namespace longspan
