// The CUDA backend and base/cuda.h. The runtime is linked statically and loads the driver on first use, so
// the program starts and runs on the CPU without a GPU.
#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/backend.h"
#include "base/cuda/cuda.h"
#include "base/cuda/rng_cuda.h"
#include "base/error.h"

namespace longspan {
namespace cuda {
namespace {

// Allocations of this process by pointer, since cudaFree does not report the size that it frees.
struct Ledger {
  std::mutex mutex;
  std::unordered_map<void*, size_t> sizes;
  std::vector<Allocated> devices;

  Allocated& device(int index) {
    if (index >= static_cast<int>(devices.size())) devices.resize(static_cast<size_t>(index) + 1);
    return devices[static_cast<size_t>(index)];
  }
};

Ledger& ledger() {
  static Ledger* ledger = new Ledger;  // outlives every static Buffer
  return *ledger;
}

std::string version_text(int version) {
  return version == 0 ? "" : fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace

void fail(cudaError_t status, const char* call, const char* file, int line) {
  cudaGetLastError();  // clears an error that is not sticky, so that the next check does not report it again
  const bool memory = status == cudaErrorMemoryAllocation;
  throw Error(memory ? ErrorKind::kOutOfMemory : ErrorKind::kInternal,
              memory ? fmt::format("out of memory (in {})", call)
                     : fmt::format("{}: {}", cudaGetErrorName(status), cudaGetErrorString(status)),
              file, line, call);
}

std::string driver_version() {
  int version = 0;
  return cudaDriverGetVersion(&version) == cudaSuccess ? version_text(version) : "";
}

std::string runtime_version() {
  int version = 0;
  return cudaRuntimeGetVersion(&version) == cudaSuccess ? version_text(version) : "";
}

DeviceGuard::DeviceGuard(int index) {
  LONGSPAN_CUDA(cudaGetDevice(&previous_));
  if (index != previous_) LONGSPAN_CUDA(cudaSetDevice(index));
}

DeviceGuard::~DeviceGuard() {
  cudaSetDevice(previous_);
}

Allocated allocated(int index) {
  std::lock_guard lock(ledger().mutex);
  return ledger().device(index);
}

void reset_peak(int index) {
  std::lock_guard lock(ledger().mutex);
  ledger().device(index).peak_bytes = ledger().device(index).now_bytes;
}

void copy_async(void* to, const void* from, size_t bytes, Stream stream) {
  if (bytes != 0) LONGSPAN_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, raw(stream)));
}

void fill_async(void* to, unsigned char value, size_t bytes, Stream stream) {
  if (bytes != 0) LONGSPAN_CUDA(cudaMemsetAsync(to, value, bytes, raw(stream)));
}

void synchronize(Stream stream) {
  LONGSPAN_CUDA(cudaStreamSynchronize(raw(stream)));
}

OwnedStream::OwnedStream(int index) {
  const DeviceGuard guard(index);
  cudaStream_t stream = nullptr;
  LONGSPAN_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  stream_.handle = stream;
}

OwnedStream::~OwnedStream() {
  cudaStreamDestroy(raw(stream_));
}

Event::Event(int index, Timing timing) {
  const DeviceGuard guard(index);
  LONGSPAN_CUDA(cudaEventCreateWithFlags(
      &event_, timing == Timing::kOn ? cudaEventDefault : static_cast<unsigned>(cudaEventDisableTiming)));
}

Event::~Event() {
  cudaEventDestroy(event_);
}

void Event::record(Stream stream) {
  LONGSPAN_CUDA(cudaEventRecord(event_, raw(stream)));
}

void Event::synchronize() const {
  LONGSPAN_CUDA(cudaEventSynchronize(event_));
}

void Event::wait_in(Stream stream) const {
  LONGSPAN_CUDA(cudaStreamWaitEvent(raw(stream), event_, 0));
}

bool Event::reached() const {
  const cudaError_t status = cudaEventQuery(event_);
  if (status == cudaErrorNotReady) return false;
  LONGSPAN_CUDA(status);
  return true;
}

double Event::seconds_since(const Event& start) const {
  float milliseconds = 0;
  LONGSPAN_CUDA(cudaEventElapsedTime(&milliseconds, start.event_, event_));
  return milliseconds * 1e-3;
}

}  // namespace cuda

namespace {

using cuda::DeviceGuard;
using cuda::ledger;

void* allocate(size_t bytes, int index) {
  const DeviceGuard guard(index);
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  LONGSPAN_CUDA(status);
  std::lock_guard lock(ledger().mutex);
  ledger().sizes[data] = bytes;
  cuda::Allocated& device = ledger().device(index);
  device.now_bytes += bytes;
  device.peak_bytes = std::max(device.peak_bytes, device.now_bytes);
  return data;
}

void release(void* data, int index) noexcept {
  {
    std::lock_guard lock(ledger().mutex);
    const auto entry = ledger().sizes.find(data);
    if (entry != ledger().sizes.end()) {
      ledger().device(index).now_bytes -= entry->second;
      ledger().sizes.erase(entry);
    }
  }
  cudaFree(data);  // unified addressing: the pointer identifies its device
}

size_t free_bytes(int index) {
  const DeviceGuard guard(index);
  size_t free = 0, total = 0;
  LONGSPAN_CUDA(cudaMemGetInfo(&free, &total));
  return free;
}

// On the default stream of the calling thread's device. A blocking copy or fill is ordered only after that
// stream's work, so wait for the whole device first. copy_async allows overlap.
void copy(void* to, const void* from, size_t bytes) {
  LONGSPAN_CUDA(cudaDeviceSynchronize());
  LONGSPAN_CUDA(cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
  LONGSPAN_CUDA(cudaStreamSynchronize(nullptr));  // device-to-device copies return before they are done
}

void copy_rows(void* to, size_t to_stride, const void* from, size_t from_stride, size_t row_bytes,
               size_t rows) {
  LONGSPAN_CUDA(cudaDeviceSynchronize());
  LONGSPAN_CUDA(cudaMemcpy2D(to, to_stride, from, from_stride, row_bytes, rows, cudaMemcpyDefault));
  LONGSPAN_CUDA(cudaStreamSynchronize(nullptr));
}

void fill(void* to, unsigned char value, size_t bytes) {
  LONGSPAN_CUDA(cudaDeviceSynchronize());
  LONGSPAN_CUDA(cudaMemset(to, value, bytes));
  LONGSPAN_CUDA(cudaStreamSynchronize(nullptr));
}

// Allowed in a capture, since it asks the driver's tables and no stream.
std::string misplaced(const void* data, int index) {
  cudaPointerAttributes attributes{};
  const cudaError_t status = cudaPointerGetAttributes(&attributes, data);
  if (status == cudaErrorInvalidValue)
    cudaGetLastError();  // no memory that CUDA knows
  else
    LONGSPAN_CUDA(status);  // an earlier call has failed
  if (attributes.type != cudaMemoryTypeUnregistered) return "";
  int reads_any = 0;  // this device reads all memory of the host
  LONGSPAN_CUDA(cudaDeviceGetAttribute(&reads_any, cudaDevAttrPageableMemoryAccess, index));
  if (reads_any != 0) return "";
  return fmt::format("at {}, which is memory of the host; copy it to CUDA device {}", data, index);
}

// "GPU-8f3b2c1d-..." in groups of 8, 4, 4, 4 and 12 digits.
std::string text_of(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += "-";
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

// All devices of the machine that are visible to this process, or the reason that there are none.
struct Found {
  std::vector<Device> devices;
  std::string reason;
};

Found find_devices() {
  Found found;
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    cudaGetLastError();
    found.reason = cuda::driver_version().empty() ? "no NVIDIA driver was found"
                                                  : fmt::format("{}", cudaGetErrorString(status));
    return found;
  }
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties{};
    const cudaError_t queried = cudaGetDeviceProperties(&properties, index);
    if (queried != cudaSuccess) {
      cudaGetLastError();
      found.reason = fmt::format("CUDA device {}: {}", index, cudaGetErrorString(queried));
      continue;
    }
    found.devices.push_back({.kind = DeviceKind::kCuda,
                             .index = index,
                             .name = properties.name,
                             .units = properties.multiProcessorCount,
                             .capability = 10 * properties.major + properties.minor,
                             .memory_bytes = properties.totalGlobalMem,
                             .cache_bytes = static_cast<size_t>(properties.l2CacheSize),
                             .uuid = text_of(properties.uuid)});
  }
  if (found.devices.empty() && found.reason.empty()) found.reason = "the driver lists no device";
  return found;
}

const Found& found() {
  static const Found found = find_devices();
  return found;
}

}  // namespace

const Backend* cuda_backend() {
  static constexpr Backend backend = {
      .allocate = allocate,
      .release = release,
      .free_bytes = free_bytes,
      .copy = copy,
      .copy_rows = copy_rows,
      .fill = fill,
      .fill_normal = cuda::fill_normal,
      .use = [](int index) { LONGSPAN_CUDA(cudaSetDevice(index)); },
      .misplaced = misplaced,
      .devices = [] { return found().devices; },
  };
  return &backend;
}

std::string no_cuda_reason() {
  return found().devices.empty() ? found().reason : "";
}

}  // namespace longspan
