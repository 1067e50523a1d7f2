// Cache eviction by flush instructions of x86-64 and AArch64, or by sweeping a buffer.
#include "bench/measure/cold_cache.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/parallel.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace longspan::bench {
namespace {

#if defined(__x86_64__)

constexpr std::string_view kFallback = "clflush";

bool has_clflushopt() {
  static const bool has = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b >> 23 & 1) != 0;
  }();
  return has;
}

uintptr_t line_bytes() {
  static const uintptr_t bytes = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    const uintptr_t stated = __get_cpuid(1, &a, &b, &c, &d) != 0 ? (b >> 8 & 0xff) * 8 : 0;
    return stated == 0 ? uintptr_t{64} : stated;
  }();
  return bytes;
}

// clflushopt is not ordered with other flushes, unlike clflush, so many can be in flight. The fence completes
// them.
__attribute__((target("clflushopt"))) void flush_optimised(const char* begin, const char* end) {
  for (const char* line = begin; line < end; line += line_bytes()) _mm_clflushopt(const_cast<char*>(line));
  _mm_mfence();
}

bool flush(const char* begin, const char* end) {
  begin -= reinterpret_cast<uintptr_t>(begin) % line_bytes();
  if (has_clflushopt()) {
    flush_optimised(begin, end);
    return true;
  }
  for (const char* line = begin; line < end; line += line_bytes()) _mm_clflush(line);
  _mm_mfence();
  return true;
}

#elif defined(__aarch64__)

constexpr std::string_view kFallback = "dc civac";
bool has_clflushopt() {
  return false;
}

uintptr_t line_bytes() {
  uint64_t type = 0;
  asm("mrs %0, ctr_el0" : "=r"(type));
  return uintptr_t{4} << (type >> 16 & 0xf);
}

bool flush(const char* begin, const char* end) {
  begin -= reinterpret_cast<uintptr_t>(begin) % line_bytes();
  for (const char* line = begin; line < end; line += line_bytes()) {
    asm volatile("dc civac, %0" ::"r"(line) : "memory");
  }
  asm volatile("dsb ish" ::: "memory");
  return true;
}

#else

constexpr std::string_view kFallback = "sweep";
bool has_clflushopt() {
  return false;
}
bool flush(const char*, const char*) {
  return false;
}

#endif

void sweep(size_t cache_bytes) {
  static std::vector<unsigned char> buffer;
  buffer.resize(std::max<size_t>(cache_bytes, size_t{32} << 20) * 5 / 4);
  volatile unsigned char* bytes = buffer.data();
  for (size_t i = 0; i < buffer.size(); i += 64) bytes[i] = static_cast<unsigned char>(bytes[i] + 1);
}

}  // namespace

void evict_from_caches(std::span<const MemorySpan> memory, size_t cache_bytes) {
  // Bytes per task: large enough to make the cost of a task negligible.
  constexpr size_t kChunk = size_t{1} << 20;
  std::vector<MemorySpan> chunks;
  for (const MemorySpan& span : memory) {
    for (size_t begin = 0; begin < span.bytes; begin += kChunk) {
      chunks.push_back({static_cast<char*>(span.data) + begin, std::min(kChunk, span.bytes - begin)});
    }
  }
  if (kFallback == "sweep") {
    sweep(cache_bytes);
    return;
  }
  parallel_for(static_cast<int64_t>(chunks.size()), [&](int64_t i, int) {
    const auto* begin = static_cast<const char*>(chunks[static_cast<size_t>(i)].data);
    flush(begin, begin + chunks[static_cast<size_t>(i)].bytes);
  });
}

std::string_view eviction_method() {
  return has_clflushopt() ? "clflushopt" : kFallback;
}

}  // namespace longspan::bench
