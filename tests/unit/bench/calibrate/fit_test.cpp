// Fits recover the figures that times were made of, and read nccl-tests' tables.
#include "bench/calibrate/fit.h"

#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "mask/patterns/patterns.h"

namespace longspan::bench {
namespace {

constexpr int64_t kHeads = 8, kGroups = 2;

std::vector<KernelSample> samples_of(const KernelPassCost& pass, int64_t units) {
  std::vector<KernelSample> samples;
  for (const char* mask : {"full", "causal", "causal_document"}) {
    for (const int64_t tokens : {256, 512, 1024, 2048}) {
      PatternOptions options;
      options.seqlen = tokens;
      const HeadMasks masks = draw_mask(mask, options).masks;
      const TileWork work = tile_work(masks, kHeads, kGroups, pass);
      samples.push_back({work, 128, seconds_of(work, pass, units, 128)});
    }
  }
  return samples;
}

TEST(FitKernel, RecoversTheTimesOfASerialRank) {
  KernelPassCost made;
  made.tile_rows = 256, made.tile_keys = 16, made.most_pack = 4;
  made.tile_s = 1e-5, made.row_tile_s = 4e-5, made.launch_s = 2e-5;
  KernelPassCost fitted = made;
  fitted.tile_s = fitted.row_tile_s = fitted.launch_s = 0;
  const Residual residual = fit_kernel(samples_of(made, 1), 1, fitted);
  EXPECT_LT(residual.largest, 1e-6);
  EXPECT_NEAR(fitted.tile_s, made.tile_s, 1e-3 * made.tile_s);
  EXPECT_NEAR(fitted.row_tile_s, made.row_tile_s, 1e-3 * made.row_tile_s);
  EXPECT_NEAR(fitted.launch_s, made.launch_s, 1e-3 * made.launch_s);
}

TEST(FitKernel, FindsTheTailOfManyUnits) {
  KernelPassCost made;
  made.tile_s = 2e-6, made.row_tile_s = 1e-6, made.tail = 0.5;
  KernelPassCost fitted = made;
  fitted.tile_s = fitted.row_tile_s = fitted.tail = 0;
  const Residual residual = fit_kernel(samples_of(made, 16), 16, fitted);
  EXPECT_LT(residual.largest, 0.02);
}

TEST(FitKernel, RefusesTimesOfNothing) {
  KernelPassCost made, fitted;
  made.tile_s = 1e-5;
  std::vector<KernelSample> samples = samples_of(made, 1);
  samples.back().time_s = 0;
  EXPECT_THROW(fit_kernel(samples, 1, fitted), Error);
}

TEST(FitKernel, NeverFitsANegativeTime) {
  KernelPassCost made, fitted;
  made.tile_s = 1e-5;
  std::vector<KernelSample> samples = samples_of(made, 1);
  for (size_t i = 0; i < samples.size(); ++i) samples[i].time_s *= i % 2 == 0 ? 0.9 : 1.1;
  const Residual residual = fit_kernel(samples, 1, fitted);
  for (const double time_s : {fitted.tile_s, fitted.row_tile_s, fitted.key_tile_s, fitted.launch_s})
    EXPECT_GE(time_s, 0);
  EXPECT_GT(residual.mean, 0.01);
  EXPECT_LT(residual.mean, 0.12);
}

TEST(FitLine, RecoversLatencyAndRate) {
  const Line line = fit_line({{1e3, 2e-5 + 1e-6}, {1e5, 2e-5 + 1e-4}, {1e7, 2e-5 + 1e-2}});
  EXPECT_NEAR(line.latency_s, 2e-5, 1e-9);
  EXPECT_NEAR(line.bytes_per_s, 1e9, 1e3);
  EXPECT_LT(line.residual.largest, 1e-6);
  EXPECT_THROW(fit_line({{1e3, 1e-5}, {1e3, 2e-5}}), Error);
  EXPECT_THROW(fit_line({{1e3, 0}, {1e6, 1e-8}}), Error);
}

TEST(FitLine, GivesARateAndALargeResidualWhenNoiseHidesIt) {
  const Line line = fit_line({{1e3, 2e-5}, {1e6, 1e-8}});
  EXPECT_EQ(line.latency_s, 0);
  EXPECT_GT(line.bytes_per_s, 0);
  EXPECT_GT(line.residual.largest, 0.9);
}

TEST(NcclTests, AreReadByTheirColumns) {
  const std::vector<LineSample> samples = read_nccl_tests(
      "# nThread 1 nGpus 8\n"
      "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw "
      "  "
      "busbw #wrong\n"
      "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s) "
      " "
      "(GB/s)       \n"
      "     1048576        262144     float    none      -1    20.00   52.43   45.87      0    19.00   55.19 "
      "  "
      "48.29    N/A\n"
      "  1073741824     268435456     float    none      -1   4000.0  268.44  234.88      0   3990.0  269.11 "
      " "
      "235.47    N/A\n"
      "# Avg bus bandwidth    : 140\n");
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_DOUBLE_EQ(samples[0].time_s, 20e-6);
  EXPECT_NEAR(samples[0].bytes, 45.87e9 * 20e-6, 1);
  EXPECT_NEAR(samples[1].bytes, 234.88e9 * 4e-3, 1);
  EXPECT_THROW(read_nccl_tests("no table\n"), Error);
  EXPECT_THROW(read_nccl_tests("1 2 3 4 5 6 7 8\n"), Error);
}

}  // namespace
}  // namespace longspan::bench
