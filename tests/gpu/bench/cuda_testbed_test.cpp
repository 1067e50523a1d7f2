// The CUDA testbed: timing by events, cold caches, peak memory and NVML readings.
#include "bench/measure/cuda_testbed.h"

#include <algorithm>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

#include "base/buffer.h"
#include "base/cuda/cuda.h"
#include "base/cuda/cuda_gate.h"
#include "bench/measure/nvml.h"
#include "gpu/gpu.h"

namespace longspan::bench {
namespace {

bool reached(cudaEvent_t event) {
  const cudaError_t status = cudaEventQuery(event);
  cudaGetLastError();
  return status == cudaSuccess;
}

TEST(CudaGate, HoldsTheStreamUntilItOpens) {
  LONGSPAN_NEEDS_GPU();
  const Device gpu = first_gpu();
  const cuda::OwnedStream stream(gpu.index);
  cudaEvent_t behind = nullptr;
  LONGSPAN_CUDA(cudaEventCreate(&behind));
  CudaGate gate(gpu.index);
  for (int i = 0; i < 3; ++i) {
    gate.shut(stream, 60);
    LONGSPAN_CUDA(cudaEventRecord(behind, cuda::raw(stream)));
    EXPECT_FALSE(reached(behind));
    gate.open();
    LONGSPAN_CUDA(cudaEventSynchronize(behind));
    EXPECT_FALSE(gate.timed_out());
  }
  LONGSPAN_CUDA(cudaEventDestroy(behind));
}

TEST(CudaGate, TimesOutIfItIsNotOpened) {
  LONGSPAN_NEEDS_GPU();
  const Device gpu = first_gpu();
  const cuda::OwnedStream stream(gpu.index);
  CudaGate gate(gpu.index);
  gate.shut(stream, 0.01);
  cuda::synchronize(stream);
  EXPECT_TRUE(gate.timed_out());
}

class CudaTestbedTest : public testing::Test {
 protected:
  void SetUp() override {
    LONGSPAN_NEEDS_GPU();
    testbed = make_cuda_testbed(first_gpu());
  }
  std::unique_ptr<Testbed> testbed;
};

// As in a process to which a launcher assigned the second visible GPU.
TEST(CudaTestbedOfAnotherDevice, BecomesTheThreadsCurrentDevice) {
  LONGSPAN_NEEDS_GPU();
  std::vector<Device> gpus = devices();
  std::erase_if(gpus, [](const Device& device) { return device.kind != DeviceKind::kCuda; });
  if (gpus.size() < 2) GTEST_SKIP() << "one GPU";
  std::thread([&] {
    const auto testbed = make_cuda_testbed(gpus[1]);
    const Buffer buffer(1024, gpus[1]);
    fill_bytes(buffer.data(), DeviceKind::kCuda, 7, buffer.bytes());
    std::vector<unsigned char> bytes(buffer.bytes());
    copy_bytes(bytes.data(), DeviceKind::kCpu, buffer.data(), DeviceKind::kCuda, buffer.bytes());
    EXPECT_THAT(bytes, testing::Each(7));
  }).join();
}

TEST_F(CudaTestbedTest, TimesOnlyTheWork) {
  const size_t bytes = size_t{2} << 30;
  const Buffer a(bytes, testbed->device()), b(bytes, testbed->device());
  const auto stopwatch = testbed->stopwatch({}, true);
  const Work copy = [&] { cuda::copy_async(b.data(), a.data(), bytes, testbed->stream()); };
  const Work twice = [&] { copy(), copy(); };
  stopwatch->time(copy);
  const double one = stopwatch->time(copy).time_s, two = stopwatch->time(twice).time_s;
  EXPECT_GT(one, 2 * static_cast<double>(bytes) / 20e12);  // no memory moves 20 TB/s
  EXPECT_GT(two, 1.5 * one);
  EXPECT_LT(stopwatch->time([] {}).time_s, one);  // the flush and the gate are not included
}

TEST_F(CudaTestbedTest, TimesWorkThatWaitsForTheDevice) {
  const auto stopwatch = testbed->stopwatch({}, true);
  const Work work = [&] { cuda::synchronize(testbed->stream()); };
  for (int i = 0; i < 3; ++i) EXPECT_GE(stopwatch->time(work).time_s, 0);
}

TEST_F(CudaTestbedTest, TimesARowOfSamplesAsItTimesOne) {
  const size_t bytes = size_t{1} << 30;
  const Buffer a(bytes, testbed->device()), b(bytes, testbed->device());
  const auto stopwatch = testbed->stopwatch({}, true);
  const Work copy = [&] { cuda::copy_async(b.data(), a.data(), bytes, testbed->stream()); };
  const auto middle = [](std::vector<double> times_s) {
    std::sort(times_s.begin(), times_s.end());
    return times_s[times_s.size() / 2];
  };
  std::vector<double> one, row;
  for (int i = 0; i < 20; ++i) one.push_back(stopwatch->time(copy).time_s);
  EXPECT_GT(stopwatch->row_length(middle(one)), 10);
  EXPECT_EQ(stopwatch->row_length(1), 1);
  for (const Sample& sample : stopwatch->row(copy, 20)) row.push_back(sample.time_s);
  ASSERT_EQ(row.size(), 20u);
  EXPECT_NEAR(middle(row) / middle(one), 1, 0.3);
}

// More launches than the driver queues behind a closed gate, and work that synchronises with the device.
TEST_F(CudaTestbedTest, TimesARowOfWorkThatCannotBeQueued) {
  const Buffer memory(1 << 20, testbed->device());
  const auto fill = [&] { cuda::fill_async(memory.data(), 1, memory.bytes(), testbed->stream()); };
  const auto many = testbed->stopwatch({}, true);
  const Work launches = [&] {
    for (int i = 0; i < 2000; ++i) fill();
  };
  const auto waits = testbed->stopwatch({}, true);
  const Work synchronizes = [&] {
    fill();
    cuda::synchronize(testbed->stream());
  };
  for (int i = 0; i < 3; ++i) {
    EXPECT_GT(many->row(launches, 10).front().time_s, 1e-4);
    EXPECT_GT(waits->row(synchronizes, 10).front().time_s, 0);
  }
}

TEST_F(CudaTestbedTest, MeasuresPeakMemory) {
  const Buffer before(1 << 20, testbed->device());
  testbed->begin_peak();
  { const Buffer inside(3 << 20, testbed->device()); }
  const Buffer after(1 << 20, testbed->device());
  EXPECT_EQ(testbed->end_peak(), 3u << 20);
}

TEST_F(CudaTestbedTest, MeasuresTheCeilingOfEveryDtype) {
  double fastest = 0, f32 = 0;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const Ceiling ceiling = testbed->measure_ceiling(dtype);
    EXPECT_GE(ceiling.samples_s.size(), 3u);
    EXPECT_GT(ceiling.flops_per_s, 1e12);
    EXPECT_LT(ceiling.flops_per_s, 1e16);
    EXPECT_THAT(ceiling.what, testing::HasSubstr("cuBLAS"));
    (dtype == DType::kF32 ? f32 : fastest) = ceiling.flops_per_s;
    std::printf("%s: %.1f TFLOP/s\n", ceiling.what.c_str(), ceiling.flops_per_s * 1e-12);
  }
  EXPECT_GT(fastest, f32);
}

TEST_F(CudaTestbedTest, RecordsTheDevicesState) {
  if (testbed->driver().empty()) GTEST_SKIP() << "no NVML";
  testbed->take_device_state();
  EXPECT_FALSE(testbed->take_device_state());  // no sample, no state
  const Buffer a(1 << 20, testbed->device());
  const auto stopwatch = testbed->stopwatch({}, false);
  stopwatch->time([&] { cuda::fill_async(a.data(), 0, a.bytes(), testbed->stream()); });
  const auto state = testbed->take_device_state();
  ASSERT_TRUE(state);
  EXPECT_GT(state->sm_clock_mhz[1], 100);
  EXPECT_GT(state->power_w, 10);
  EXPECT_GT(state->temperature_c, 10);
}

TEST(Throttling, IsNamedAndDisturbsIfTheHardwareSlowsDown) {
  EXPECT_THAT(throttle_reasons(0), testing::IsEmpty());
  EXPECT_THAT(throttle_reasons(0x1 | 0x2), testing::IsEmpty());  // idle; clocks set by a user
  EXPECT_THAT(throttle_reasons(0x4 | 0x40),
              testing::ElementsAre("software power cap", "hardware thermal slowdown"));
  EXPECT_FALSE(disturbs(0x4));
  EXPECT_TRUE(disturbs(0x4 | 0x8));
  EXPECT_TRUE(disturbs(0x20));
}

}  // namespace
}  // namespace longspan::bench
