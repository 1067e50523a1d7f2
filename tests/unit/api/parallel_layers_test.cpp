// The layers of a model by the public headers: two masks on one placement (the strategy's, or one with a rank
// without tokens), several layers of each, gradients of o and lse, against plans of a single device.
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "longspan/parallel.h"
#include "unit/api/misuse.h"

namespace longspan {
namespace {

constexpr int64_t kTokens = 200;

Problem problem_of(Mask mask) {
  Problem problem;
  problem.tokens_q = problem.tokens_kv = kTokens;
  problem.heads_q = 6;
  problem.heads_kv = 3;
  problem.head_dim = 16;
  problem.lse_gradient = true;
  problem.set_mask(std::move(mask));
  return problem;
}

// A layer on one device, with results.
struct Layer {
  Layer(const Problem& problem, uint64_t seed) : problem(problem) {
    const auto plan = make_plan(problem, cpu_device());
    args.emplace(problem, plan.get());
    dlse.resize(static_cast<size_t>(problem.heads_q * kTokens));
    const auto rows = static_cast<int64_t>(dlse.size());
    fill_normal(TensorView::contiguous(dlse.data(), DType::kF32, rows, 1, 1), seed, 9);
    for (TensorView* view : {&args->forward.q, &args->forward.k, &args->forward.v, &args->backward.dout})
      fill_normal(*view, seed, static_cast<uint64_t>(view->heads));
    args->backward.dlse = dlse.data();
    plan->forward(args->forward, {});
    plan->backward(args->backward, {});
  }

  const Problem& problem;
  std::optional<Arguments> args;
  std::vector<float> dlse;
};

// Visits [in the sequence, in the packed rows] for each token of a rank.
template <class Visit>
void for_each_token(const std::vector<Range>& tokens, const Visit& visit) {
  int64_t row = 0;
  for (const Range& range : tokens) {
    for (int64_t token = range.begin; token < range.end; ++token) visit(token, row++);
  }
}

void take_rows(const TensorView& whole, const std::vector<Range>& tokens, const TensorView& part) {
  for_each_token(tokens, [&](int64_t token, int64_t row) {
    for (int64_t head = 0; head < whole.heads; ++head)
      std::memcpy(part.row_address(row, head), whole.row_address(token, head),
                  static_cast<size_t>(whole.head_dim) * sizeof(float));
  });
}

double difference(const TensorView& whole, const std::vector<Range>& tokens, const TensorView& part) {
  double most = 0;
  for_each_token(tokens, [&](int64_t token, int64_t row) {
    for (int64_t head = 0; head < whole.heads; ++head) {
      for (int64_t d = 0; d < whole.head_dim; ++d)
        most = std::max(most, static_cast<double>(std::abs(whole.row<float>(token, head)[d] -
                                                           part.row<float>(row, head)[d])));
    }
  });
  return most;
}

// A rank's part of a layer.
struct Part {
  Part(const Layer& layer, ParallelAttention& attention)
      : layer(layer), attention(attention), kept(attention.kept_bytes(), cpu_device()) {
    Problem own = layer.problem;
    own.tokens_q = own.tokens_kv = attention.token_count();
    args.emplace(own);
    const std::vector<Range>& tokens = attention.tokens();
    take_rows(layer.args->forward.q, tokens, args->forward.q);
    take_rows(layer.args->forward.k, tokens, args->forward.k);
    take_rows(layer.args->forward.v, tokens, args->forward.v);
    take_rows(layer.args->backward.dout, tokens, args->backward.dout);
    dlse.resize(static_cast<size_t>(own.heads_q * own.tokens_q));
    for_each_token(tokens, [&](int64_t token, int64_t row) {
      for (int64_t head = 0; head < own.heads_q; ++head)
        dlse[static_cast<size_t>(head * own.tokens_q + row)] =
            layer.dlse[static_cast<size_t>(head * kTokens + token)];
    });
    args->backward.dlse = dlse.data();
  }

  // Lays values and their gradients out as [heads, tokens, head_dim]; keys stay as they are.
  void lay_values_by_heads() {
    const int64_t tokens = attention.token_count();
    for (const auto& [view, number] : {std::pair(&args->forward.v, 0), std::pair(&args->backward.dv, 1)}) {
      const TensorView before = *view;
      Buffer& memory = by_heads[number];
      memory = Buffer(std::max<size_t>(before.bytes(), 1), cpu_device());
      *view = before;
      view->data = memory.data();
      view->token_stride = before.head_dim;
      view->head_stride = tokens * before.head_dim;
      for (int64_t row = 0; row < tokens; ++row) {
        for (int64_t head = 0; head < before.heads; ++head)
          std::memcpy(view->row_address(row, head), before.row_address(row, head),
                      static_cast<size_t>(before.head_dim) * sizeof(float));
      }
    }
    args->backward.v = args->forward.v;
  }

  void forward() { attention.forward(args->forward, {}, {kept.as<std::byte>(), kept.bytes()}); }
  void backward() { attention.backward(args->backward, {}, {kept.as<std::byte>(), kept.bytes()}); }
  void expect_results() const {
    const std::vector<Range>& tokens = attention.tokens();
    const BackwardArgs &whole = layer.args->backward, &part = args->backward;
    EXPECT_LT(difference(whole.o, tokens, part.o), 1e-5);
    EXPECT_LT(difference(whole.dq, tokens, part.dq), 1e-4);
    EXPECT_LT(difference(whole.dk, tokens, part.dk), 1e-4);
    EXPECT_LT(difference(whole.dv, tokens, part.dv), 1e-4);
  }

  const Layer& layer;
  ParallelAttention& attention;
  Buffer kept;
  std::optional<Arguments> args;
  std::vector<float> dlse;
  Buffer by_heads[2];
};

TEST(ParallelLayers, OfTwoMasksShareAPlacement) {
  const Problem full = problem_of(Mask::window(kTokens, kUnboundedAbove, 0)),
                window = problem_of(Mask::window(kTokens, 30, 0));
  const Layer layers[] = {{full, 1}, {window, 2}, {full, 3}, {window, 4}};
  for (const std::string& strategy : strategy_names()) {
    SCOPED_TRACE(strategy);
    const RankTokens placements[] = {place_tokens(full, {.strategy = strategy}, 3),
                                     {{{150, 200}, {0, 50}}, {}, {{50, 150}}}};
    for (const RankTokens& placement : placements) {
      run_ranks(Group::threads(3), [&](const Group& group) {
        const ParallelConfig config{.strategy = strategy, .tokens = placement};
        const SharedBuffers buffers(cpu_device());
        ParallelAttention in_full(full, config, group, cpu_device(), Direction::kBackward, buffers),
            in_window(window, config, group, cpu_device(), Direction::kBackward, buffers);
        EXPECT_EQ(in_full.rank_tokens(), placement);
        EXPECT_EQ(in_window.rank_tokens(), placement);
        std::vector<Part> parts;
        for (const Layer& layer : layers)
          parts.emplace_back(layer, &layer.problem == &full ? in_full : in_window);
        for (Part& part : parts) part.forward();
        for (auto part = parts.rbegin(); part != parts.rend(); ++part) part->backward();
        for (const Part& part : parts) part.expect_results();
      });
    }
  }
}

TEST(ParallelLayers, ValuesMayLieOtherwiseThanKeys) {
  const Problem full = problem_of(Mask::window(kTokens));
  const Layer layer{full, 5};
  for (const std::string& strategy : strategy_names()) {
    run_ranks(Group::threads(3), [&](const Group& group) {
      SCOPED_TRACE(strategy);
      ParallelAttention attention(full, {.strategy = strategy}, group, cpu_device());
      Part part(layer, attention);
      part.lay_values_by_heads();
      part.forward();
      part.backward();
      part.expect_results();
    });
  }
}

}  // namespace
}  // namespace longspan
