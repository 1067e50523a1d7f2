// Each block takes one chunk of a copy after another. A thread keeps many loads in flight, since a load from
// another GPU takes microseconds.
#include <algorithm>
#include <cstdint>

#include "base/cuda/cuda.h"
#include "base/cuda/cuda_check.h"
#include "base/error.h"
#include "comm/pull.h"

namespace longspan {
namespace {

constexpr int kThreads = 256;
constexpr int kLoads = 8;                  // loads in flight per thread
constexpr int kCopies = 48;                // copies per launch
constexpr int kChunk = kThreads * kLoads;  // units per block and step

// A unit is one load: 16, 4 or 1 bytes.
struct Segment {
  const char* from;
  char* to;
  uint64_t from_stride, to_stride;  // bytes
  uint32_t row_units, units;        // per row, and in total
  uint32_t end;                     // end of this copy in chunks, counting the copies before it
};
struct Segments {
  Segment list[kCopies];
  int count = 0;
  uint32_t chunks = 0;
};

template <class Unit>
__global__ void __launch_bounds__(kThreads) pull_kernel(const __grid_constant__ Segments segments) {
  for (uint32_t chunk = blockIdx.x; chunk < segments.chunks; chunk += gridDim.x) {
    int number = 0;
    while (segments.list[number].end <= chunk) ++number;
    const Segment& s = segments.list[number];
    const uint32_t before = number == 0 ? 0 : segments.list[number - 1].end;
    const uint32_t first = (chunk - before) * kChunk + threadIdx.x;
    Unit values[kLoads];
    uint64_t to[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const uint32_t unit = first + i * kThreads;
      if (unit >= s.units) continue;
      uint32_t row = 0, column = unit;
      if (s.row_units < s.units) {
        row = unit / s.row_units;
        column = unit - row * s.row_units;
      }
      to[i] = row * s.to_stride + uint64_t{column} * sizeof(Unit);
      values[i] = __ldcs(
          reinterpret_cast<const Unit*>(s.from + row * s.from_stride + uint64_t{column} * sizeof(Unit)));
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (first + i * kThreads < s.units) *reinterpret_cast<Unit*>(s.to + to[i]) = values[i];
    }
  }
}

// The largest unit that divides all addresses, strides and lengths.
int unit_bytes(const RowCopy& copy) {
  const uint64_t all = reinterpret_cast<uintptr_t>(copy.to) | reinterpret_cast<uintptr_t>(copy.from) |
                       copy.row_bytes | (copy.rows > 1 ? copy.to_stride | copy.from_stride : 0);
  return all % 16 == 0 ? 16 : all % 4 == 0 ? 4 : 1;
}

template <class Unit>
void launch(const Segments& segments, int multiprocessors, cudaStream_t stream) {
  const unsigned most = static_cast<unsigned>(multiprocessors) * 8;
  pull_kernel<Unit><<<std::min(segments.chunks, most), kThreads, 0, stream>>>(segments);
  LONGSPAN_CUDA_LAUNCHED();
}

template <class Unit>
void pull_in_units(std::span<const RowCopy> copies, int multiprocessors, cudaStream_t stream) {
  Segments segments;
  for (const RowCopy& copy : copies) {
    if (unit_bytes(copy) != sizeof(Unit) || copy.rows * copy.row_bytes == 0) continue;
    const uint64_t row_units = copy.row_bytes / sizeof(Unit), units = row_units * copy.rows;
    LONGSPAN_CHECK(units <= UINT32_MAX - kChunk, "a message of {} bytes is too long",
                   copy.rows * copy.row_bytes);
    segments.chunks += static_cast<uint32_t>((units + kChunk - 1) / kChunk);
    segments.list[segments.count] = {
        static_cast<const char*>(copy.from), static_cast<char*>(copy.to),  copy.from_stride, copy.to_stride,
        static_cast<uint32_t>(row_units),    static_cast<uint32_t>(units), segments.chunks};
    if (++segments.count < kCopies) continue;
    launch<Unit>(segments, multiprocessors, stream);
    segments = {};
  }
  if (segments.count > 0) launch<Unit>(segments, multiprocessors, stream);
}

}  // namespace

void pull_rows(std::span<const RowCopy> copies, Stream stream) {
  int device = 0, multiprocessors = 0;
  LONGSPAN_CUDA(cudaGetDevice(&device));
  LONGSPAN_CUDA(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
  const cudaStream_t raw = cuda::raw(stream);
  pull_in_units<uint4>(copies, multiprocessors, raw);
  pull_in_units<uint32_t>(copies, multiprocessors, raw);
  pull_in_units<uint8_t>(copies, multiprocessors, raw);
}

}  // namespace longspan
