#include "attention/oracle/oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <cblas.h>

#include "attention/blas.h"
#include "attention/element.h"
#include "attention/oracle/oracle_cuda.h"
#include "attention/score.h"
#include "base/parallel.h"

namespace longspan {
namespace {

constexpr int64_t kItems = 16;   // sampled rows (or keys) that one task processes together
constexpr int64_t kBlock = 128;  // keys (or rows) per block
constexpr double kNone = -std::numeric_limits<double>::infinity();

using Matrix = std::vector<double>;  // row-major

double square(double x) {
  return x * x;
}

// c[m, n] = a[m, depth] b[n, depth]^T
void multiply_transposed(int64_t m, int64_t n, int64_t depth, const double* a, const double* b, double* c) {
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, static_cast<int>(m), static_cast<int>(n),
              static_cast<int>(depth), 1, a, static_cast<int>(depth), b, static_cast<int>(depth), 0, c,
              static_cast<int>(n));
}

Matrix magnitudes(Matrix matrix) {
  for (double& x : matrix) x = std::abs(x);
  return matrix;
}

// c[m, n] = a[m, depth] b[depth, n]
void multiply(int64_t m, int64_t n, int64_t depth, const double* a, const double* b, double* c) {
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, static_cast<int>(m), static_cast<int>(n),
              static_cast<int>(depth), 1, a, static_cast<int>(depth), b, static_cast<int>(n), 0, c,
              static_cast<int>(n));
}

double dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// Consecutive tokens of one head, with their squared norms.
struct TokenBlock {
  Matrix rows, norms;
  void read(const TensorView& tensor, int64_t head, int64_t begin, int64_t end) {
    rows.resize((end - begin) * tensor.head_dim);
    norms.resize(end - begin);
    for (int64_t t = begin; t < end; ++t) {
      double* row = &rows[(t - begin) * tensor.head_dim];
      load_row(tensor, t, head, row);
      norms[t - begin] = dot(row, row, tensor.head_dim);
    }
  }
};

// A sampled row and the keys that it sees, or a sampled key and the rows that see it.
struct Item {
  int64_t head = 0, token = 0;
  int64_t place = 0;  // index among all samples
  std::vector<Range> partners;
  size_t next = 0;  // the first range of partners that is not yet fully behind

  // The first block at or after `block` that holds a partner.
  int64_t next_block(int64_t block) {
    while (next < partners.size() && partners[next].end <= block * kBlock) ++next;
    return next == partners.size() ? std::numeric_limits<int64_t>::max()
                                   : std::max(block, partners[next].begin / kBlock);
  }

  // Calls visit(j) for each partner begin + j in [begin, end), after next_block has advanced to it.
  template <class Visit>
  void for_each_partner(int64_t begin, int64_t end, Visit visit) const {
    for (size_t i = next; i < partners.size() && partners[i].begin < end; ++i) {
      const int64_t last = std::min(end, partners[i].end);
      for (int64_t j = std::max(begin, partners[i].begin); j < last; ++j) visit(j - begin);
    }
  }
};

// Walks the items together through all blocks in which any of them has a partner.
template <class Visit>  // visit(begin, end, active items)
void walk(std::vector<Item>& items, int64_t tokens, Visit visit) {
  std::vector<size_t> active;
  for (Item& item : items) item.next = 0;
  for (int64_t block = 0;; ++block) {
    int64_t nearest = std::numeric_limits<int64_t>::max();
    for (Item& item : items) nearest = std::min(nearest, item.next_block(block));
    if (nearest == std::numeric_limits<int64_t>::max()) return;
    block = nearest;
    active.clear();
    for (size_t i = 0; i < items.size(); ++i) {
      if (items[i].next_block(block) == block) active.push_back(i);
    }
    visit(block * kBlock, std::min(tokens, (block + 1) * kBlock), active);
  }
}

Matrix gather(const Matrix& rows, const std::vector<size_t>& which, int64_t dim) {
  Matrix gathered(which.size() * dim);
  for (size_t i = 0; i < which.size(); ++i) {
    std::copy_n(&rows[which[i] * dim], dim, &gathered[i * dim]);
  }
  return gathered;
}

Matrix load_items(const TensorView& tensor, const std::vector<Item>& items) {
  Matrix rows(items.size() * tensor.head_dim);
  for (size_t i = 0; i < items.size(); ++i) {
    load_row(tensor, items[i].token, items[i].head, &rows[i * tensor.head_dim]);
  }
  return rows;
}

void resize(ReferenceRows& rows, int64_t count, int64_t dim) {
  rows.values.assign(count * dim, 0);
  for (auto* list : {&rows.spread, &rows.cancelled, &rows.operands, &rows.terms, &rows.scores})
    list->assign(count, 0);
}

// Applies the factor and takes the roots of the sums of squares.
void finish(ReferenceRows& rows, int64_t place, int64_t dim, double factor) {
  for (int64_t d = 0; d < dim; ++d) rows.values[place * dim + d] *= factor;
  for (auto* list : {&rows.spread, &rows.cancelled, &rows.operands, &rows.scores}) {
    (*list)[place] = std::abs(factor) * std::sqrt((*list)[place]);
  }
}

// A pair's score and its derivative with respect to the scaled product, with the errors of both in f32.
struct Score {
  double value, derivative;
  double error;           // of the value
  double gradient_error;  // of the derivative times exp(value), relative to exp(value)
};

// `magnitude` is that of score_error().
Score score_of(const ScoreRule<double>& rule, double product, double magnitude, int64_t head_dim, int64_t row,
               int64_t key) {
  constexpr double kRounding = 0x1p-24;
  double error = score_error(magnitude, head_dim);
  if (rule.plain()) return {product, 1, error, error};
  const double capped = rule.capped(product), derivative = rule.derivative(capped);
  double gradient_error = 0;
  if (rule.softcap != 0) {
    // tanh errs by two roundings of 1, its derivative 1 - tanh^2 by four, and by what the product's error
    // does.
    gradient_error = 4 * kRounding + derivative * 2 * error / rule.softcap;
    error = derivative * error + 2 * kRounding * rule.softcap;
  }
  const double penalty = rule.penalty(row, key);
  error += 2 * kRounding * penalty;  // the product with the distance, and the difference
  return {capped - penalty, derivative, error, gradient_error + derivative * error};
}

// Groups samples of one KV head, kItems at a time; samples with nearby partners share a group.
std::vector<std::vector<Item>> into_tasks(std::vector<std::vector<Item>> by_kv_head) {
  std::vector<std::vector<Item>> tasks;
  for (auto& items : by_kv_head) {
    std::stable_sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
      const auto first = [](const Item& item) { return item.partners.empty() ? -1 : item.partners[0].begin; };
      return std::pair(first(a), a.token) < std::pair(first(b), b.token);
    });
    for (size_t begin = 0; begin < items.size(); begin += kItems) {
      const size_t end = std::min(items.size(), begin + kItems);
      tasks.emplace_back(std::make_move_iterator(items.begin() + begin),
                         std::make_move_iterator(items.begin() + end));
    }
  }
  return tasks;
}

std::vector<std::vector<Item>> row_tasks(const Problem& problem, const Samples& samples) {
  std::vector<std::vector<Item>> by_kv_head(problem.heads_kv);
  int64_t place = 0;
  for (int64_t h = 0; h < problem.heads_q; ++h) {
    for (int64_t row : samples.rows[h]) {
      by_kv_head[problem.kv_head_of(h)].push_back(
          {h, row, place++, problem.mask_of_query_head(h).visible_keys(row)});
    }
  }
  return into_tasks(std::move(by_kv_head));
}

std::vector<std::vector<Item>> key_tasks(const Problem& problem, const Samples& samples) {
  std::vector<std::vector<Item>> by_kv_head(problem.heads_kv);
  std::vector<int64_t> first_place(problem.heads_kv, 0);
  for (int64_t h = 1; h < problem.heads_kv; ++h) {
    first_place[h] = first_place[h - 1] + static_cast<int64_t>(samples.keys[h - 1].size());
  }
  const auto masks = static_cast<int64_t>(problem.masks->size());
  parallel_for(masks, [&](int64_t m, int) {
    const Mask transposed = (*problem.masks)[m].transposed();
    for (int64_t h = masks == 1 ? 0 : m; h < (masks == 1 ? problem.heads_kv : m + 1); ++h) {
      for (size_t i = 0; i < samples.keys[h].size(); ++i) {
        const int64_t key = samples.keys[h][i];
        by_kv_head[h].push_back(
            {h, key, first_place[h] + static_cast<int64_t>(i), transposed.visible_keys(key)});
      }
    }
  });
  return into_tasks(std::move(by_kv_head));
}

// Returns the largest error of a score.
double forward_task(const Problem& problem, const OracleInputs& inputs, std::vector<Item>& items,
                    ForwardReference& reference) {
  const int64_t dim = problem.head_dim, dim_v = problem.dim_v(), kv_head = problem.kv_head_of(items[0].head);
  const double scale = problem.softmax_scale();
  const Matrix q = load_items(inputs.q, items);
  double largest_error = 0;
  std::vector<double> sum(items.size(), 0);
  // Sums of (weight * error of its score)^2, alone and times v. Errors that all weights share cancel in o, so
  // each counts by the distance of its v from o.
  std::vector<double> errors(items.size(), 0);
  Matrix error_values(items.size() * dim_v, 0);
  TokenBlock k, v;
  Matrix scores, sizes, product;
  walk(items, problem.tokens_kv, [&](int64_t begin, int64_t end, const std::vector<size_t>& active) {
    const auto m = static_cast<int64_t>(active.size()), n = end - begin;
    k.read(inputs.k, kv_head, begin, end);
    v.read(inputs.v, kv_head, begin, end);
    scores.resize(m * n);
    sizes.resize(m * n);
    product.resize(m * dim_v);
    const Matrix of_q = gather(q, active, dim);
    multiply_transposed(m, n, dim, of_q.data(), k.rows.data(), scores.data());
    multiply_transposed(m, n, dim, magnitudes(of_q).data(), magnitudes(k.rows).data(), sizes.data());
    Matrix p(m * n, 0), squares(m * n, 0);
    for (int64_t i = 0; i < m; ++i) {
      const Item& item = items[active[i]];
      const auto rule = ScoreRule<double>::of(problem, item.head);
      double* s = &scores[i * n];  // of products, then of scores
      double* error = &sizes[i * n];
      double& largest = reference.largest[item.place];
      double block_largest = largest;
      item.for_each_partner(begin, end, [&](int64_t j) {
        const Score score =
            score_of(rule, scale * s[j], std::abs(scale) * error[j], dim, item.token, begin + j);
        s[j] = score.value;
        error[j] = score.error;
        block_largest = std::max(block_largest, s[j]);
      });
      const double keep = std::exp(largest - block_largest);  // 0 in the first block
      largest = block_largest;
      double& spread = reference.o.spread[item.place];
      spread *= square(keep);
      sum[active[i]] *= keep;
      errors[active[i]] *= square(keep);
      reference.o.scores[item.place] *= square(keep);
      for (int64_t d = 0; d < dim_v; ++d) {
        reference.o.values[item.place * dim_v + d] *= keep;
        error_values[active[i] * dim_v + d] *= square(keep);
      }
      item.for_each_partner(begin, end, [&](int64_t j) {
        const double weight = std::exp(s[j] - largest);
        p[i * n + j] = weight;
        sum[active[i]] += weight;
        spread += square(weight) * v.norms[j];
        largest_error = std::max(largest_error, error[j]);
        squares[i * n + j] = square(weight * error[j]);
        errors[active[i]] += squares[i * n + j];
        reference.o.scores[item.place] += squares[i * n + j] * v.norms[j];
        reference.o.operands[item.place] += v.norms[j];
        reference.o.terms[item.place] += 1;
      });
    }
    multiply(m, dim_v, n, p.data(), v.rows.data(), product.data());
    for (int64_t i = 0; i < m; ++i) {
      double* o = &reference.o.values[items[active[i]].place * dim_v];
      for (int64_t d = 0; d < dim_v; ++d) o[d] += product[i * dim_v + d];
    }
    multiply(m, dim_v, n, squares.data(), v.rows.data(), product.data());
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t d = 0; d < dim_v; ++d) error_values[active[i] * dim_v + d] += product[i * dim_v + d];
    }
  });
  for (size_t i = 0; i < items.size(); ++i) {
    const int64_t place = items[i].place;
    if (items[i].partners.empty()) continue;  // o = 0, lse = -inf
    // The sum of squares |v - o|^2 = |v|^2 - 2 v o + |o|^2, where o is not yet divided by the sum of weights.
    const double* o = &reference.o.values[place * dim_v];
    const double to_o = dot(&error_values[i * dim_v], o, dim_v) / sum[i];
    const double around =
        reference.o.scores[place] - 2 * to_o + errors[i] * dot(o, o, dim_v) / square(sum[i]);
    reference.o.scores[place] = std::max(0.0, around);
    reference.lse_scores[place] = std::sqrt(errors[i]) / sum[i];
    finish(reference.o, place, dim_v, 1 / sum[i]);
    reference.lse[place] = reference.largest[place] + std::log(sum[i]);
  }
  return largest_error;
}

double dlse_of(const OracleInputs& inputs, int64_t index) {
  return inputs.dlse == nullptr ? 0 : inputs.dlse[index];
}

// delta of each row, the dot product of o and dout, less dlse: [heads_q, tokens_q]. With s the scaled scores,
// dlse adds p dlse to ds, since the gradient of lse with respect to s is p.
std::vector<double> all_deltas(const Problem& problem, const OracleInputs& inputs) {
  constexpr int64_t kRows = 256;
  std::vector<double> deltas(problem.heads_q * problem.tokens_q);
  const int64_t chunks = (problem.tokens_q + kRows - 1) / kRows;
  parallel_for(chunks, [&](int64_t chunk, int) {
    Matrix o(problem.dim_v()), dout(problem.dim_v());
    for (int64_t row = chunk * kRows; row < std::min(problem.tokens_q, (chunk + 1) * kRows); ++row) {
      for (int64_t h = 0; h < problem.heads_q; ++h) {
        load_row(inputs.o, row, h, o.data());
        load_row(inputs.dout, row, h, dout.data());
        const int64_t index = h * problem.tokens_q + row;
        deltas[index] = dot(o.data(), dout.data(), problem.dim_v()) - dlse_of(inputs, index);
      }
    }
  });
  return deltas;
}

void dq_task(const Problem& problem, const OracleInputs& inputs, const std::vector<double>& deltas,
             std::vector<Item>& items, ReferenceRows& dq) {
  const int64_t dim = problem.head_dim, dim_v = problem.dim_v(), kv_head = problem.kv_head_of(items[0].head);
  const double scale = problem.softmax_scale();
  const Matrix q = load_items(inputs.q, items), dout = load_items(inputs.dout, items);
  TokenBlock k, v;
  Matrix scores, sizes, dp, product;
  walk(items, problem.tokens_kv, [&](int64_t begin, int64_t end, const std::vector<size_t>& active) {
    const auto m = static_cast<int64_t>(active.size()), n = end - begin;
    k.read(inputs.k, kv_head, begin, end);
    v.read(inputs.v, kv_head, begin, end);
    scores.resize(m * n);
    sizes.resize(m * n);
    dp.resize(m * n);
    product.resize(m * dim);
    const Matrix of_q = gather(q, active, dim);
    multiply_transposed(m, n, dim, of_q.data(), k.rows.data(), scores.data());
    multiply_transposed(m, n, dim, magnitudes(of_q).data(), magnitudes(k.rows).data(), sizes.data());
    multiply_transposed(m, n, dim_v, gather(dout, active, dim_v).data(), v.rows.data(), dp.data());
    Matrix ds(m * n, 0);
    for (int64_t i = 0; i < m; ++i) {
      const Item& item = items[active[i]];
      const int64_t index = item.head * problem.tokens_q + item.token;
      const double lse = inputs.lse[index], delta = deltas[index], dlse = dlse_of(inputs, index);
      const double dout_norm = dot(&dout[active[i] * dim_v], &dout[active[i] * dim_v], dim_v);
      const auto rule = ScoreRule<double>::of(problem, item.head);
      item.for_each_partner(begin, end, [&](int64_t j) {
        const Score score = score_of(rule, scale * scores[i * n + j], std::abs(scale) * sizes[i * n + j], dim,
                                     item.token, begin + j);
        const double p = std::exp(score.value - lse), difference = dp[i * n + j] - delta;
        const double before = p * difference;
        ds[i * n + j] = before * score.derivative;
        dq.spread[item.place] += square(ds[i * n + j]) * k.norms[j];
        dq.scores[item.place] += square(before * score.gradient_error) * k.norms[j];
        dq.cancelled[item.place] +=
            square(p * score.derivative) * (v.norms[j] * dout_norm + square(dlse)) * k.norms[j];
        dq.operands[item.place] += (1 + square(difference * score.derivative)) * k.norms[j];
        dq.terms[item.place] += 1;
      });
    }
    multiply(m, dim, n, ds.data(), k.rows.data(), product.data());
    for (int64_t i = 0; i < m; ++i) {
      double* out = &dq.values[items[active[i]].place * dim];
      for (int64_t d = 0; d < dim; ++d) out[d] += product[i * dim + d];
    }
  });
  for (const Item& item : items) finish(dq, item.place, dim, scale);
}

// One query head's share of dk and dv of the items. Places are indices within the task.
void dkv_task(const Problem& problem, const OracleInputs& inputs, const std::vector<double>& deltas,
              std::vector<Item> items, int64_t head, ReferenceRows& dk, ReferenceRows& dv) {
  const int64_t dim = problem.head_dim, dim_v = problem.dim_v();
  const double scale = problem.softmax_scale();
  const auto rule = ScoreRule<double>::of(problem, head);
  const Matrix k = load_items(inputs.k, items), v = load_items(inputs.v, items);
  TokenBlock q, dout;
  Matrix scores, sizes, dp, product;
  const auto add = [&](const Matrix& weights, const TokenBlock& block, int64_t width, int64_t n,
                       const std::vector<size_t>& active, ReferenceRows& rows) {
    const auto m = static_cast<int64_t>(active.size());
    product.resize(m * width);
    multiply(m, width, n, weights.data(), block.rows.data(), product.data());
    for (int64_t i = 0; i < m; ++i) {
      double* out = &rows.values[active[i] * width];
      for (int64_t d = 0; d < width; ++d) out[d] += product[i * width + d];
    }
  };
  walk(items, problem.tokens_q, [&](int64_t begin, int64_t end, const std::vector<size_t>& active) {
    const auto m = static_cast<int64_t>(active.size()), n = end - begin;
    q.read(inputs.q, head, begin, end);
    dout.read(inputs.dout, head, begin, end);
    scores.resize(m * n);
    sizes.resize(m * n);
    dp.resize(m * n);
    const Matrix of_k = gather(k, active, dim);
    multiply_transposed(m, n, dim, of_k.data(), q.rows.data(), scores.data());
    multiply_transposed(m, n, dim, magnitudes(of_k).data(), magnitudes(q.rows).data(), sizes.data());
    multiply_transposed(m, n, dim_v, gather(v, active, dim_v).data(), dout.rows.data(), dp.data());
    Matrix p(m * n, 0), ds(m * n, 0);
    for (int64_t i = 0; i < m; ++i) {
      const size_t a = active[i];
      const double v_norm = dot(&v[a * dim_v], &v[a * dim_v], dim_v);
      items[a].for_each_partner(begin, end, [&](int64_t j) {
        const int64_t index = head * problem.tokens_q + begin + j;
        const Score score = score_of(rule, scale * scores[i * n + j], std::abs(scale) * sizes[i * n + j], dim,
                                     begin + j, items[a].token);
        const double weight = std::exp(score.value - double{inputs.lse[index]});
        const double difference = dp[i * n + j] - deltas[index], before = weight * difference;
        p[i * n + j] = weight;
        ds[i * n + j] = before * score.derivative;
        dv.scores[a] += square(weight * score.error) * dout.norms[j];
        dk.scores[a] += square(before * score.gradient_error) * q.norms[j];
        dv.spread[a] += square(weight) * dout.norms[j];
        dv.operands[a] += dout.norms[j];
        dv.terms[a] += 1;
        dk.spread[a] += square(ds[i * n + j]) * q.norms[j];
        const double parts = v_norm * dout.norms[j] + square(dlse_of(inputs, index));
        dk.cancelled[a] += square(weight * score.derivative) * parts * q.norms[j];
        dk.operands[a] += (1 + square(difference * score.derivative)) * q.norms[j];
        dk.terms[a] += 1;
      });
    }
    add(p, dout, dim_v, n, active, dv);
    add(ds, q, dim, n, active, dk);
  });
}

// Adds row `from` of one to row `to` of the other; spreads are still sums of squares.
void add_row(ReferenceRows& into, int64_t to, const ReferenceRows& part, int64_t from, int64_t dim) {
  for (int64_t d = 0; d < dim; ++d) into.values[to * dim + d] += part.values[from * dim + d];
  into.spread[to] += part.spread[from];
  into.cancelled[to] += part.cancelled[from];
  into.operands[to] += part.operands[from];
  into.terms[to] += part.terms[from];
  into.scores[to] += part.scores[from];
}

}  // namespace

double score_error(double magnitude, int64_t head_dim) {
  return 0.5 * std::sqrt(static_cast<double>(head_dim)) * 0x1p-24 * magnitude;
}

bool oracle_reads(DeviceKind kind, [[maybe_unused]] const Problem& problem) {
#ifdef LONGSPAN_WITH_CUDA
  const float ordinary = kOrdinaryScale / std::sqrt(static_cast<float>(problem.head_dim));
  if (kind == DeviceKind::kCuda)
    return std::max(problem.head_dim, problem.dim_v()) <= kOracleCudaMaxHeadDim && problem.softcap == 0 &&
           problem.alibi_slopes.empty() && std::abs(problem.softmax_scale()) <= ordinary;
#endif
  return kind == DeviceKind::kCpu;
}

ForwardReference reference_forward(const Problem& problem, const OracleInputs& inputs,
                                   const Samples& samples) {
#ifdef LONGSPAN_WITH_CUDA
  if (inputs.kind == DeviceKind::kCuda) {
    ForwardReference reference = reference_forward_cuda(problem, inputs, samples);
    reference.o.scores.assign(reference.o.spread.size(), 0);
    reference.lse_scores.assign(reference.o.spread.size(), 0);
    return reference;
  }
#endif
  prepare_blas();
  const int64_t rows = samples.row_count();
  ForwardReference reference;
  resize(reference.o, rows, problem.dim_v());
  reference.lse.assign(rows, kNone);
  reference.largest.assign(rows, kNone);
  reference.lse_scores.assign(rows, 0);
  auto tasks = row_tasks(problem, samples);
  std::vector<double> errors(tasks.size());
  parallel_for(static_cast<int64_t>(tasks.size()),
               [&](int64_t t, int) { errors[t] = forward_task(problem, inputs, tasks[t], reference); });
  for (const double error : errors) reference.score_error = std::max(reference.score_error, error);
  return reference;
}

BackwardReference reference_backward(const Problem& problem, const OracleInputs& inputs,
                                     const Samples& samples) {
#ifdef LONGSPAN_WITH_CUDA
  if (inputs.kind == DeviceKind::kCuda) {
    BackwardReference reference = reference_backward_cuda(problem, inputs, samples);
    for (ReferenceRows* rows : {&reference.dq, &reference.dk, &reference.dv})
      rows->scores.assign(rows->spread.size(), 0);
    return reference;
  }
#endif
  prepare_blas();
  const int64_t dim = problem.head_dim, dim_v = problem.dim_v(), group = problem.group_size();
  const std::vector<double> deltas = all_deltas(problem, inputs);
  BackwardReference reference;
  resize(reference.dq, samples.row_count(), dim);
  resize(reference.dk, samples.key_count(), dim);
  resize(reference.dv, samples.key_count(), dim_v);

  auto by_row = row_tasks(problem, samples);
  parallel_for(static_cast<int64_t>(by_row.size()),
               [&](int64_t t, int) { dq_task(problem, inputs, deltas, by_row[t], reference.dq); });

  // One task per query head of the group. The shares are added in head order, so the result does not depend
  // on the number of threads.
  const auto by_key = key_tasks(problem, samples);
  std::vector<ReferenceRows> dk_parts(by_key.size() * group), dv_parts(by_key.size() * group);
  parallel_for(static_cast<int64_t>(dk_parts.size()), [&](int64_t t, int) {
    const auto& items = by_key[t / group];
    resize(dk_parts[t], static_cast<int64_t>(items.size()), dim);
    resize(dv_parts[t], static_cast<int64_t>(items.size()), dim_v);
    dkv_task(problem, inputs, deltas, items, items[0].head * group + t % group, dk_parts[t], dv_parts[t]);
  });
  for (size_t t = 0; t < dk_parts.size(); ++t) {
    const auto& items = by_key[t / group];
    for (size_t i = 0; i < items.size(); ++i) {
      add_row(reference.dk, items[i].place, dk_parts[t], static_cast<int64_t>(i), dim);
      add_row(reference.dv, items[i].place, dv_parts[t], static_cast<int64_t>(i), dim_v);
    }
  }
  for (int64_t i = 0; i < samples.key_count(); ++i) {
    finish(reference.dk, i, dim, problem.softmax_scale());
    finish(reference.dv, i, dim_v, 1);
  }
  return reference;
}

}  // namespace longspan
