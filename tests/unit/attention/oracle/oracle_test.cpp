// The oracle against attention by its definition, and its gradients against finite differences of the loss.
#include "attention/oracle/oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "base/parallel.h"
#include "base/rng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "mask/patterns/patterns.h"

namespace longspan {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Tensors in f64, and attention by its definition over all of them.
struct Definition {
  Problem problem;
  std::vector<double> q, k, v, dout, o;
  std::vector<float> lse;
  std::vector<double> exact_lse;

  explicit Definition(const Problem& p) : problem(p) {
    const int64_t rows = p.tokens_q * p.heads_q, keys = p.tokens_kv * p.heads_kv;
    q.resize(rows * p.head_dim);
    dout.resize(rows * p.dim_v());
    k.resize(keys * p.head_dim);
    v.resize(keys * p.dim_v());
    fill_normal(view(q, p.tokens_q, p.heads_q), 5, 0);
    fill_normal(view(k, p.tokens_kv, p.heads_kv), 5, 1);
    fill_normal(view(v, p.tokens_kv, p.heads_kv), 5, 2);
    fill_normal(view(dout, p.tokens_q, p.heads_q), 5, 3);
    forward();
  }

  static TensorView view(const std::vector<double>& data, int64_t tokens, int64_t heads) {
    return TensorView::contiguous(const_cast<double*>(data.data()), DType::kF64, tokens, heads,
                                  static_cast<int64_t>(data.size()) / tokens / heads);
  }

  double score(int64_t h, int64_t i, int64_t j) const {
    double sum = 0;
    for (int64_t d = 0; d < problem.head_dim; ++d) {
      sum += q[(i * problem.heads_q + h) * problem.head_dim + d] *
             k[(j * problem.heads_kv + problem.kv_head_of(h)) * problem.head_dim + d];
    }
    sum *= problem.softmax_scale();
    if (problem.softcap != 0) sum = problem.softcap * std::tanh(sum / problem.softcap);
    if (!problem.alibi_slopes.empty()) {
      const int64_t distance = i + problem.tokens_kv - problem.tokens_q - j;
      sum -= problem.alibi_slopes[h] * static_cast<double>(std::abs(distance));
    }
    return sum;
  }

  void forward() {
    o.assign(dout.size(), 0);
    lse.assign(problem.heads_q * problem.tokens_q, 0);
    exact_lse.assign(lse.size(), -kInf);
    for (int64_t h = 0; h < problem.heads_q; ++h) {
      const Mask& mask = problem.mask_of_query_head(h);
      for (int64_t i = 0; i < problem.tokens_q; ++i) {
        double sum = 0;
        for (int64_t j = 0; j < problem.tokens_kv; ++j) {
          if (mask.visible(i, j)) sum += std::exp(score(h, i, j));
        }
        exact_lse[h * problem.tokens_q + i] = std::log(sum);
        lse[h * problem.tokens_q + i] = static_cast<float>(std::log(sum));
        for (int64_t j = 0; j < problem.tokens_kv; ++j) {
          if (!mask.visible(i, j)) continue;
          for (int64_t d = 0; d < problem.dim_v(); ++d) {
            o[(i * problem.heads_q + h) * problem.dim_v() + d] +=
                std::exp(score(h, i, j)) / sum *
                v[(j * problem.heads_kv + problem.kv_head_of(h)) * problem.dim_v() + d];
          }
        }
      }
    }
  }

  double loss() {
    forward();
    double sum = 0;
    for (size_t e = 0; e < o.size(); ++e) sum += o[e] * dout[e];
    return sum;
  }

  OracleInputs inputs() const {
    OracleInputs in;
    in.q = view(q, problem.tokens_q, problem.heads_q);
    in.k = view(k, problem.tokens_kv, problem.heads_kv);
    in.v = view(v, problem.tokens_kv, problem.heads_kv);
    in.o = view(o, problem.tokens_q, problem.heads_q);
    in.dout = view(dout, problem.tokens_q, problem.heads_q);
    in.lse = lse.data();
    return in;
  }
};

Problem make_problem(HeadMasks masks, int64_t heads_q, int64_t heads_kv, int64_t head_dim) {
  Problem problem;
  problem.tokens_q = masks.front().rows();
  problem.tokens_kv = masks.front().columns();
  problem.heads_q = heads_q;
  problem.heads_kv = heads_kv;
  problem.head_dim = head_dim;
  problem.scale = 0.6f;
  problem.masks = std::make_shared<HeadMasks>(std::move(masks));
  return problem;
}

// A rectangular mask with rows without keys, keys without rows, and rows with two bands.
HeadMasks odd_masks(int64_t rows, int64_t columns) {
  return {Mask(rows, columns,
               {Band{{2, rows}, {0, columns / 2}, -40, 10}, Band{{5, 20}, {columns / 2 + 3, columns - 1}}}),
          Mask(rows, columns, {Band{{0, rows}, {0, columns}, kUnboundedBelow, 0}})};
}

Samples all_of(const Problem& problem, Direction direction) {
  return choose_samples(problem, direction, {.all = true});
}

// The problem, and the same with what goes beyond plain attention.
std::vector<Problem> with_features(const Problem& plain) {
  Problem values = plain, capped = plain, alibi = plain, all = plain;
  values.head_dim_v = plain.head_dim + 3;
  capped.softcap = 1.5;
  for (int64_t h = 0; h < plain.heads_q; ++h) alibi.alibi_slopes.push_back(0.2f / static_cast<float>(1 + h));
  all.head_dim_v = plain.head_dim - 2;
  all.softcap = 2;
  all.alibi_slopes = alibi.alibi_slopes;
  return {plain, values, capped, alibi, all};
}

class OracleOf : public testing::TestWithParam<size_t> {};  // one of with_features()
INSTANTIATE_TEST_SUITE_P(Features, OracleOf, testing::Range<size_t>(0, 5));

TEST_P(OracleOf, TheForwardPassIsTheDefinition) {
  const Definition definition(with_features(make_problem(odd_masks(300, 277), 4, 2, 24))[GetParam()]);
  const Problem& problem = definition.problem;
  const auto reference =
      reference_forward(problem, definition.inputs(), all_of(problem, Direction::kForward));
  int64_t place = 0;
  for (int64_t h = 0; h < problem.heads_q; ++h) {
    for (int64_t i = 0; i < problem.tokens_q; ++i, ++place) {
      const double want = definition.exact_lse[h * problem.tokens_q + i];
      if (want == -kInf) {
        EXPECT_EQ(reference.lse[place], -kInf);
      } else {
        EXPECT_NEAR(reference.lse[place], want, 1e-12);
      }
      EXPECT_EQ(reference.o.terms[place], problem.mask_of_query_head(h).visible_count(i));
      for (int64_t d = 0; d < problem.dim_v(); ++d) {
        EXPECT_NEAR(reference.o.values[place * problem.dim_v() + d],
                    definition.o[(i * problem.heads_q + h) * problem.dim_v() + d], 1e-12);
      }
    }
  }
}

// Each gradient equals the slope of the loss, by central differences.
TEST_P(OracleOf, TheBackwardPassIsTheSlopeOfTheLoss) {
  Definition definition(with_features(make_problem(odd_masks(23, 19), 4, 2, 5))[GetParam()]);
  const Problem problem = definition.problem;
  // lse is an f32 input; its rounding shifts the gradients slightly.
  const auto reference =
      reference_backward(problem, definition.inputs(), all_of(problem, Direction::kBackward));
  constexpr double kStep = 1e-5;
  const auto check = [&](std::vector<double>& input, const ReferenceRows& gradient, int64_t tokens,
                         int64_t heads) {
    const int64_t dim = Definition::view(input, tokens, heads).head_dim;
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t d = 0; d < dim; ++d) {
          double& x = input[(t * heads + h) * dim + d];
          const double before = x;
          x = before + kStep;
          const double up = definition.loss();
          x = before - kStep;
          const double down = definition.loss();
          x = before;
          EXPECT_NEAR(gradient.values[(h * tokens + t) * dim + d], (up - down) / (2 * kStep), 2e-6)
              << "token " << t << ", head " << h << ", element " << d;
        }
      }
    }
  };
  check(definition.q, reference.dq, problem.tokens_q, problem.heads_q);
  check(definition.k, reference.dk, problem.tokens_kv, problem.heads_kv);
  check(definition.v, reference.dv, problem.tokens_kv, problem.heads_kv);
}

// Sampled rows do not depend on the number of blocks of keys or on the number of threads.
TEST(Oracle, SamplesAreRowsOfTheWhole) {
  const Definition definition(make_problem(odd_masks(700, 650), 4, 2, 8));
  const Problem& problem = definition.problem;
  const Samples all = all_of(problem, Direction::kBackward);
  const auto whole = reference_forward(problem, definition.inputs(), all);
  const auto whole_gradients = reference_backward(problem, definition.inputs(), all);
  const Samples some = choose_samples(problem, Direction::kBackward, {.per_head = 20, .seed = 3});
  for (const int threads : {1, 3}) {
    set_thread_count(threads);
    const auto part = reference_forward(problem, definition.inputs(), some);
    const auto gradients = reference_backward(problem, definition.inputs(), some);
    const auto same = [&](const ReferenceRows& a, const ReferenceRows& b,
                          const std::vector<std::vector<int64_t>>& places, int64_t tokens) {
      int64_t place = 0;
      for (size_t h = 0; h < places.size(); ++h) {
        for (const int64_t token : places[h]) {
          const int64_t other = static_cast<int64_t>(h) * tokens + token;
          for (int64_t d = 0; d < problem.head_dim; ++d) {
            EXPECT_NEAR(a.values[place * problem.head_dim + d], b.values[other * problem.head_dim + d],
                        1e-13);
          }
          EXPECT_NEAR(a.spread[place], b.spread[other], 1e-12);
          EXPECT_NEAR(a.cancelled[place], b.cancelled[other], 1e-12);
          EXPECT_NEAR(a.scores[place], b.scores[other], 1e-12);
          EXPECT_NEAR(a.operands[place], b.operands[other], 1e-10);
          EXPECT_EQ(a.terms[place], b.terms[other]);
          ++place;
        }
      }
    };
    same(part.o, whole.o, some.rows, problem.tokens_q);
    same(gradients.dq, whole_gradients.dq, some.rows, problem.tokens_q);
    same(gradients.dk, whole_gradients.dk, some.keys, problem.tokens_kv);
    same(gradients.dv, whole_gradients.dv, some.keys, problem.tokens_kv);
  }
  set_thread_count(available_cpus());
}

// The error of a row if its terms round independently by a relative u, divided by u.
TEST(Oracle, TheSpreadIsTheNormOfIndependentRoundings) {
  Definition definition(make_problem({Mask(40, 400, {Band{{0, 40}, {0, 400}}})}, 1, 1, 16));
  const Problem& problem = definition.problem;
  const auto reference =
      reference_forward(problem, definition.inputs(), all_of(problem, Direction::kForward));
  std::mt19937 generator(1);
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < 40; ++i) {
    double mean_square = 0;
    constexpr int kTrials = 300;
    for (int trial = 0; trial < kTrials; ++trial) {
      std::vector<double> error(16, 0);
      for (int64_t j = 0; j < 400; ++j) {
        const double p = std::exp(definition.score(0, i, j) - definition.exact_lse[i]) * normal(generator);
        for (int64_t d = 0; d < 16; ++d) error[d] += p * definition.v[j * 16 + d];
      }
      for (const double x : error) mean_square += x * x / kTrials;
    }
    EXPECT_NEAR(std::sqrt(mean_square) / reference.o.spread[i], 1, 0.15);
  }
}

// The same for errors of the scores: what independent ones of the size score_error() do to o and to lse.
TEST(Oracle, TheSensitivityToScoresIsThatOfIndependentErrors) {
  for (const float scale : {0.3f, 2.f, 20.f}) {
    Problem drawn = make_problem({Mask(30, 200, {Band{{0, 30}, {0, 200}}})}, 1, 1, 16);
    drawn.scale = scale;
    const Definition definition(drawn);
    const auto reference = reference_forward(drawn, definition.inputs(), all_of(drawn, Direction::kForward));
    std::mt19937 generator(1);
    std::normal_distribution<double> normal;
    constexpr double kMagnify = 100;  // of the errors: far above those of f64, still small
    for (int64_t i = 0; i < 30; ++i) {
      std::vector<double> size(200), score(200);
      double largest = -kInf;
      for (int64_t j = 0; j < 200; ++j) {
        for (int64_t d = 0; d < 16; ++d)
          size[j] += std::abs(definition.q[i * 16 + d] * definition.k[j * 16 + d]);
        score[j] = definition.score(0, i, j);
        largest = std::max(largest, score[j]);
      }
      double mean_square = 0, mean_square_lse = 0;
      constexpr int kTrials = 400;
      for (int trial = 0; trial < kTrials; ++trial) {
        double sum = 0;
        std::vector<double> o(16, 0);
        for (int64_t j = 0; j < 200; ++j) {
          const double error = kMagnify * score_error(scale * size[j], 16) * normal(generator);
          const double p = std::exp(score[j] + error - largest);
          sum += p;
          for (int64_t d = 0; d < 16; ++d) o[d] += p * definition.v[j * 16 + d];
        }
        for (int64_t d = 0; d < 16; ++d) {
          const double difference = (o[d] / sum - reference.o.values[i * 16 + d]) / kMagnify;
          mean_square += difference * difference / kTrials;
        }
        const double difference = (largest + std::log(sum) - reference.lse[i]) / kMagnify;
        mean_square_lse += difference * difference / kTrials;
      }
      // Where one key has all the weight, nothing reaches o but the rounding of the oracle's sums of squares.
      if (reference.o.scores[i] > 1e-6 * reference.lse_scores[i]) {
        EXPECT_NEAR(std::sqrt(mean_square) / reference.o.scores[i], 1, 0.2) << i << " " << scale;
      } else {
        EXPECT_LT(std::sqrt(mean_square), 1e-6 * reference.lse_scores[i]) << i << " " << scale;
      }
      EXPECT_NEAR(std::sqrt(mean_square_lse) / reference.lse_scores[i], 1, 0.2) << i << " " << scale;
    }
  }
}

// At large scales the oracle's own errors stay far below those that it allows a kernel.
TEST(Oracle, ItsOwnErrorsAreFarBelowTheTolerance) {
  Problem drawn = make_problem({Mask(40, 100, {Band{{0, 40}, {0, 100}}})}, 1, 1, 128);
  drawn.scale = 100;
  const Definition definition(drawn);
  const auto reference = reference_forward(drawn, definition.inputs(), all_of(drawn, Direction::kForward));
  for (int64_t i = 0; i < 40; ++i) {
    std::vector<long double> score(100);
    for (int64_t j = 0; j < 100; ++j) {
      for (int64_t d = 0; d < 128; ++d)
        score[j] += static_cast<long double>(definition.q[i * 128 + d]) * definition.k[j * 128 + d];
      score[j] *= 100;
    }
    const long double largest = *std::max_element(score.begin(), score.end());
    long double sum = 0;
    for (const long double s : score) sum += std::exp(s - largest);
    const auto error = static_cast<double>(largest + std::log(sum) - reference.lse[i]);
    EXPECT_LT(std::abs(error), 1e-6 * reference.lse_scores[i]) << i;
  }
}

TEST(Samples, CoverTheHardPlacesOfEveryHead) {
  PatternOptions options;
  options.seqlen = 5000;
  options.lengths = "uniform:300:900";
  const DrawnMask drawn = draw_mask("causal_document", options);
  const Problem problem = make_problem(drawn.masks, 8, 2, 8);
  const Samples samples = choose_samples(problem, Direction::kBackward, {.per_head = 24, .seed = 7});
  const auto counts = drawn.masks[0].visible_counts();
  ASSERT_EQ(samples.rows.size(), 8u);
  ASSERT_EQ(samples.keys.size(), 2u);
  std::set<int64_t> borders;  // first and last rows of documents
  for (int64_t begin = 0; const int64_t length : drawn.document_lengths) {
    borders.insert({begin, begin + length - 1});
    begin += length;
  }
  int64_t on_tile_borders = 0, on_borders = 0;
  for (const auto& rows : samples.rows) {
    EXPECT_EQ(rows.size(), 24u);
    EXPECT_TRUE(std::is_sorted(rows.begin(), rows.end()));
    EXPECT_THAT(rows, testing::Contains(0));
    EXPECT_THAT(rows, testing::Contains(4999));
    EXPECT_THAT(rows, testing::Contains(std::max_element(counts.begin(), counts.end()) - counts.begin()));
    EXPECT_THAT(rows, testing::Contains(4992));  // the last tile of 64 and of 128 begins here
    EXPECT_THAT(rows, testing::Contains(4991));
    for (const int64_t row : rows) {
      on_tile_borders += row % 64 == 0 || row % 64 == 63;
      on_borders += borders.contains(row);
    }
  }
  EXPECT_GE(on_tile_borders, 8 * 4);
  EXPECT_GE(on_borders, 8 * 2);
  std::set<std::vector<int64_t>> distinct(samples.rows.begin(), samples.rows.end());
  EXPECT_EQ(distinct.size(), 8u);
}

TEST(Samples, IncludeARowWithoutKeysAndAKeyWithoutRows) {
  const Mask mask(1000, 1000, {Band{{0, 500}, {0, 990}}, Band{{501, 1000}, {0, 990}}});
  const Problem problem = make_problem({mask}, 2, 2, 8);
  const Samples samples = choose_samples(problem, Direction::kBackward, {});
  for (const auto& rows : samples.rows) EXPECT_THAT(rows, testing::Contains(500));
  for (const auto& keys : samples.keys) EXPECT_THAT(keys, testing::Contains(testing::Ge(990)));
}

TEST(Samples, DependOnTheSeedAlone) {
  const Problem problem = make_problem({Mask(9000, 9000, {Band{{0, 9000}, {0, 9000}}})}, 2, 2, 8);
  const auto draw = [&](uint64_t seed) {
    return choose_samples(problem, Direction::kForward, {.seed = seed}).rows;
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
  EXPECT_EQ(choose_samples(problem, Direction::kForward, {}).key_count(), 0);
}

TEST(Samples, ShortSequencesAreTakenWhole) {
  const Problem problem = make_problem({Mask(20, 3, {Band{{0, 20}, {0, 3}}})}, 2, 1, 8);
  const Samples samples = choose_samples(problem, Direction::kBackward, {.per_head = 24});
  EXPECT_EQ(samples.row_count(), 2 * 20);
  EXPECT_EQ(samples.key_count(), 3);
}

}  // namespace
}  // namespace longspan
