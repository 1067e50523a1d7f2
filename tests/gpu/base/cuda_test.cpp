// CUDA wrappers: memory, streams, events, and errors.
#include "base/cuda/cuda.h"

#include <cstring>
#include <numeric>
#include <vector>

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>

#include "base/backend.h"
#include "base/buffer.h"
#include "base/error.h"
#include "gpu/gpu.h"

namespace longspan {
namespace {

TEST(CudaDevice, IsListedAfterTheCpu) {
  LONGSPAN_NEEDS_GPU();
  const std::vector<Device> all = devices();
  ASSERT_GE(all.size(), 2u);
  EXPECT_EQ(all[0].kind, DeviceKind::kCpu);
  const Device& gpu = all[1];
  EXPECT_EQ(gpu.kind, DeviceKind::kCuda);
  EXPECT_EQ(gpu.index, 0);
  EXPECT_FALSE(gpu.name.empty());
  EXPECT_GT(gpu.units, 0);
  EXPECT_GE(gpu.capability, 50);
  EXPECT_GT(gpu.memory_bytes, size_t{1} << 30);
  EXPECT_GT(gpu.cache_bytes, size_t{1} << 20);
}

TEST(CudaDevice, ExistsOrHasAReason) {
  bool any = false;
  for (const Device& device : devices()) any |= device.kind == DeviceKind::kCuda;
  EXPECT_EQ(any, no_cuda_reason().empty());
}

TEST(CudaDevice, RefusesMemoryOfTheHost) {
  LONGSPAN_NEEDS_GPU();
  const Device gpu = first_gpu();
  const auto misplaced = backend_of(DeviceKind::kCuda).misplaced;
  const Buffer on_gpu(100, gpu);
  EXPECT_EQ(misplaced(on_gpu.data(), gpu.index), "");
  EXPECT_EQ(misplaced(on_gpu.as<char>() + 7, gpu.index), "");
  int reads_any = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&reads_any, cudaDevAttrPageableMemoryAccess, gpu.index), cudaSuccess);
  const std::vector<float> on_host(100);
  const std::string reason = misplaced(on_host.data(), gpu.index);
  if (reads_any != 0) {
    EXPECT_EQ(reason, "");
  } else {
    EXPECT_THAT(reason, testing::HasSubstr("memory of the host"));
  }
}

TEST(CudaBuffer, CopiesInBothDirections) {
  LONGSPAN_NEEDS_GPU();
  const Device gpu = first_gpu();
  std::vector<int> out(100'003), back(out.size());
  std::iota(out.begin(), out.end(), 7);
  const size_t bytes = out.size() * sizeof(int);
  const Buffer a(bytes, gpu), b(bytes, gpu);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data()) % 256, 0u);
  copy_bytes(a.data(), DeviceKind::kCuda, out.data(), DeviceKind::kCpu, bytes);
  copy_bytes(b.data(), DeviceKind::kCuda, a.data(), DeviceKind::kCuda, bytes);
  copy_bytes(back.data(), DeviceKind::kCpu, b.data(), DeviceKind::kCuda, bytes);
  EXPECT_EQ(out, back);
  fill_bytes(b.data(), DeviceKind::kCuda, 0xff, bytes);
  copy_bytes(back.data(), DeviceKind::kCpu, b.data(), DeviceKind::kCuda, bytes);
  EXPECT_THAT(back, testing::Each(-1));
}

TEST(CudaBuffer, SaysWhatItNeededAndWhatWasFree) {
  LONGSPAN_NEEDS_GPU();
  try {
    const Buffer buffer(size_t{1} << 45, first_gpu());
    FAIL() << "32 TiB were had";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kOutOfMemory);
    EXPECT_THAT(error.what(), testing::MatchesRegex("out of memory \\(needs 32768.00 GiB, .* GiB free\\)"));
  }
  const Buffer after(1024, first_gpu());  // the failure does not affect later allocations
  EXPECT_NE(after.data(), nullptr);
}

TEST(CudaBuffer, IsCounted) {
  LONGSPAN_NEEDS_GPU();
  const Device gpu = first_gpu();
  const size_t before = cuda::allocated(gpu.index).now_bytes;
  cuda::reset_peak(gpu.index);
  {
    const Buffer a(1 << 20, gpu);
    { const Buffer b(2 << 20, gpu); }
    EXPECT_EQ(cuda::allocated(gpu.index).now_bytes, before + (1 << 20));
  }
  EXPECT_EQ(cuda::allocated(gpu.index).now_bytes, before);
  EXPECT_EQ(cuda::allocated(gpu.index).peak_bytes, before + (3 << 20));
  cuda::reset_peak(gpu.index);
  EXPECT_EQ(cuda::allocated(gpu.index).peak_bytes, before);
}

TEST(CudaEvent, OrdersStreamsAndMeasuresTime) {
  LONGSPAN_NEEDS_GPU();
  const Device gpu = first_gpu();
  const size_t bytes = size_t{1} << 30;
  const Buffer a(bytes, gpu), b(bytes, gpu);
  const cuda::OwnedStream first(gpu.index), second(gpu.index);
  cuda::Event begin(gpu.index), end(gpu.index), done(gpu.index, cuda::Event::Timing::kOff);
  cuda::fill_async(a.data(), 1, bytes, first);
  begin.record(first);
  for (int i = 0; i < 8; ++i) cuda::copy_async(b.data(), a.data(), bytes, first);
  end.record(first);
  done.record(first);
  done.wait_in(second);
  unsigned char last = 0;
  cuda::copy_async(&last, b.as<char>() + bytes - 1, 1, second);
  cuda::synchronize(second);
  EXPECT_EQ(last, 1);
  const double time_s = end.seconds_since(begin);
  EXPECT_GT(time_s, 8 * 2 * static_cast<double>(bytes) / 20e12);  // no memory moves 20 TB/s
  EXPECT_LT(time_s, 10);
}

TEST(CudaCheck, NamesTheCallAndTheError) {
  LONGSPAN_NEEDS_GPU();
  try {
    LONGSPAN_CUDA(cudaSetDevice(12345));
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("cudaErrorInvalidDevice"));
    EXPECT_THAT(error.what(), testing::HasSubstr("cudaSetDevice(12345)"));
  }
  LONGSPAN_CUDA(cudaGetLastError());  // the error is not reported a second time
}

}  // namespace
}  // namespace longspan
