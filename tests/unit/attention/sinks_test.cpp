// Attention sinks against the definition: one more key of each row, with a score and no value.
#include <cmath>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/rng.h"
#include "longspan/attention.h"

namespace longspan {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr int64_t kTokens = 37, kHeads = 3, kKeys = 5, kDim = 8;

// A loss sum(o dout) + sum(lse dlse) of rows with their own scores and values, and one sink for each head.
struct Rows {
  std::vector<double> scores, values, dout, dlse, sinks;

  Rows()
      : scores(kTokens * kHeads * kKeys),
        values(scores.size() * kDim),
        dout(kTokens * kHeads * kDim),
        dlse(kTokens * kHeads),
        sinks(kHeads) {
    uint64_t stream = 0;
    for (std::vector<double>* each : {&scores, &values, &dout, &dlse, &sinks})
      fill_normal(TensorView::contiguous(each->data(), DType::kF64, static_cast<int64_t>(each->size()), 1, 1),
                  3, stream++);
    for (int64_t key = 0; key < kKeys; ++key) scores[(2 * kHeads + 1) * kKeys + key] = -kInf;  // sees no key
  }

  // (o, lse) of a row, with or without the sink.
  double row(int64_t token, int64_t head, bool with_sink, double* o) const {
    const double* s = &scores[(token * kHeads + head) * kKeys];
    double sum = with_sink ? std::exp(sinks[head]) : 0;
    for (int64_t key = 0; key < kKeys; ++key) sum += std::exp(s[key]);
    for (int64_t d = 0; d < kDim; ++d) {
      o[d] = 0;
      for (int64_t key = 0; key < kKeys && sum > 0; ++key)
        o[d] += std::exp(s[key]) / sum * values[((token * kHeads + head) * kKeys + key) * kDim + d];
    }
    return std::log(sum);
  }
  double loss() const {
    double sum = 0, o[kDim];
    for (int64_t token = 0; token < kTokens; ++token) {
      for (int64_t head = 0; head < kHeads; ++head) {
        sum += row(token, head, true, o) * dlse[head * kTokens + token];
        for (int64_t d = 0; d < kDim; ++d) sum += o[d] * dout[(token * kHeads + head) * kDim + d];
      }
    }
    return sum;
  }
};

std::vector<float> narrow(const std::vector<double>& x) {
  return {x.begin(), x.end()};
}

TEST(Sinks, AreOneMoreKeyWithoutAValue) {
  const Rows rows;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    Buffer memory(kTokens * kHeads * kDim * size_of(dtype), cpu_device());
    const TensorView o = TensorView::contiguous(memory.data(), dtype, kTokens, kHeads, kDim);
    std::vector<float> lse(kTokens * kHeads);
    std::vector<double> row(kDim);
    const auto element = [&](int64_t token, int64_t head, int64_t d) -> double {
      if (dtype == DType::kF32) return o.row<float>(token, head)[d];
      return dtype == DType::kBF16 ? to_float(o.row<bf16>(token, head)[d])
                                   : to_float(o.row<f16>(token, head)[d]);
    };
    for (int64_t token = 0; token < kTokens; ++token) {
      for (int64_t head = 0; head < kHeads; ++head) {
        lse[head * kTokens + token] = static_cast<float>(rows.row(token, head, false, row.data()));
        for (int64_t d = 0; d < kDim; ++d) {
          const auto x = static_cast<float>(row[d]);
          if (dtype == DType::kF32) o.row<float>(token, head)[d] = x;
          if (dtype == DType::kBF16) o.row<bf16>(token, head)[d] = to_bf16(x);
          if (dtype == DType::kF16) o.row<f16>(token, head)[d] = to_f16(x);
        }
      }
    }
    const std::vector<float> sinks = narrow(rows.sinks);
    add_sinks(o, lse.data(), sinks.data(), cpu_device(), Stream{});
    const double tolerance = dtype == DType::kF32 ? 1e-6 : (dtype == DType::kBF16 ? 2e-2 : 2e-3);
    for (int64_t token = 0; token < kTokens; ++token) {
      for (int64_t head = 0; head < kHeads; ++head) {
        EXPECT_NEAR(lse[head * kTokens + token], rows.row(token, head, true, row.data()), 1e-5);
        for (int64_t d = 0; d < kDim; ++d) EXPECT_NEAR(element(token, head, d), row[d], tolerance * 3);
      }
    }
  }
}

TEST(Sinks, ASinkOfNoWeightChangesNothing) {
  std::vector<float> o = {1, 2, 0, 0},
                     lse = {3, -static_cast<float>(kInf)};  // a row that sees keys, one that sees none
  const std::vector<float> o_before = o, lse_before = lse, sinks = {-static_cast<float>(kInf)};
  add_sinks(TensorView::contiguous(o.data(), DType::kF32, 2, 1, 2), lse.data(), sinks.data(), cpu_device(),
            {});
  EXPECT_EQ(o, o_before);
  EXPECT_EQ(lse, lse_before);
}

TEST(Sinks, TheirGradientIsTheSlopeOfTheLoss) {
  Rows rows;
  std::vector<float> o(kTokens * kHeads * kDim), lse(kTokens * kHeads), dsinks(kHeads), without(kHeads);
  std::vector<double> row(kDim);
  for (int64_t token = 0; token < kTokens; ++token) {
    for (int64_t head = 0; head < kHeads; ++head) {
      lse[head * kTokens + token] = static_cast<float>(rows.row(token, head, true, row.data()));
      for (int64_t d = 0; d < kDim; ++d) o[(token * kHeads + head) * kDim + d] = static_cast<float>(row[d]);
    }
  }
  std::vector<float> dout = narrow(rows.dout), dlse = narrow(rows.dlse), sinks = narrow(rows.sinks);
  const auto view = [](std::vector<float>& data) {
    return TensorView::contiguous(data.data(), DType::kF32, kTokens, kHeads, kDim);
  };
  const auto check = [&](const std::vector<float>& got) {
    constexpr double kStep = 1e-5;
    for (int64_t head = 0; head < kHeads; ++head) {
      const double before = rows.sinks[head];
      rows.sinks[head] = before + kStep;
      const double up = rows.loss();
      rows.sinks[head] = before - kStep;
      const double down = rows.loss();
      rows.sinks[head] = before;
      EXPECT_NEAR(got[head], (up - down) / (2 * kStep), 2e-5);
    }
  };
  sink_gradients({view(o), view(dout), lse.data(), dlse.data(), sinks.data(), dsinks.data()}, cpu_device(),
                 Stream{});
  check(dsinks);
  sink_gradients({view(o), view(dout), lse.data(), nullptr, sinks.data(), without.data()}, cpu_device(),
                 Stream{});
  rows.dlse.assign(rows.dlse.size(), 0);
  check(without);
}

TEST(Sinks, MistakesAreNamed) {
  using testing::HasSubstr;
  using testing::ThrowsMessage;
  std::vector<float> o(8), lse(1), sinks(1);
  const TensorView view = TensorView::contiguous(o.data(), DType::kF32, 1, 1, 8);
  EXPECT_THAT([&] { add_sinks(view, nullptr, sinks.data(), cpu_device(), {}); },
              ThrowsMessage<Error>(HasSubstr("lse is null")));
  EXPECT_THAT([&] { add_sinks(view, lse.data(), nullptr, cpu_device(), {}); },
              ThrowsMessage<Error>(HasSubstr("sinks is null")));
  TensorView wide = view;
  wide.dtype = DType::kF64;
  EXPECT_THAT([&] { add_sinks(wide, lse.data(), sinks.data(), cpu_device(), {}); },
              ThrowsMessage<Error>(HasSubstr("must be f32, bf16 or f16")));
  wide = view;
  wide.head_dim = 4;
  EXPECT_THAT(
      [&] {
        sink_gradients({view, wide, lse.data(), nullptr, sinks.data(), sinks.data()}, cpu_device(), {});
      },
      ThrowsMessage<Error>(HasSubstr("must have those of o")));
}

}  // namespace
}  // namespace longspan
