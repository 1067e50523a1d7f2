#include "base/host_scratch.h"

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <new>
#include <vector>

#include <sys/mman.h>

#include "base/error.h"
#include "base/parallel.h"

namespace longspan {
namespace {

constexpr size_t kPiece = size_t{4} << 20;  // touched by one thread at a time: two huge pages
constexpr size_t kPage = 4096;

// Never destroyed: scratch may be returned during program exit.
struct ScratchPool {
  std::mutex mutex;
  std::vector<Buffer> free;
};
ScratchPool& scratch_pool() {
  static auto* pool = new ScratchPool;
  return *pool;
}

// Returns the smallest block that is large enough, or an empty one.
Buffer take(size_t bytes) {
  const std::lock_guard lock(scratch_pool().mutex);
  auto& free = scratch_pool().free;
  auto best = free.end();
  for (auto it = free.begin(); it != free.end(); ++it) {
    if (it->bytes() >= bytes && (best == free.end() || it->bytes() < best->bytes())) best = it;
  }
  if (best == free.end()) return {};
  Buffer buffer = std::move(*best);
  free.erase(best);
  return buffer;
}

void touch(const Buffer& buffer) {
  const size_t past_page = reinterpret_cast<uintptr_t>(buffer.data()) % kPage;
  const size_t first = past_page == 0 ? 0 : kPage - past_page;  // the first whole page
  if (buffer.bytes() <= first + kPiece) return;
  // A hint; failure is harmless.
  madvise(buffer.as<unsigned char>() + first, buffer.bytes() - first, MADV_HUGEPAGE);
  parallel_for(static_cast<int64_t>((buffer.bytes() + kPiece - 1) / kPiece), [&](int64_t piece, int) {
    auto* const bytes = buffer.as<unsigned char>();
    const size_t from = static_cast<size_t>(piece) * kPiece, to = std::min(buffer.bytes(), from + kPiece);
    for (size_t i = from; i < to; i += kPage) bytes[i] = 0;
  });
}

}  // namespace

HostScratch::HostScratch(size_t bytes) : buffer_(take(bytes)) {
  if (buffer_.bytes() >= bytes) return;
  try {
    buffer_ = Buffer(bytes, cpu_device());
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kOutOfMemory) throw;
    release_all();
    buffer_ = Buffer(bytes, cpu_device());
  }
  touch(buffer_);
}

HostScratch::~HostScratch() {
  if (buffer_.bytes() == 0) return;
  try {
    const std::lock_guard lock(scratch_pool().mutex);
    scratch_pool().free.push_back(std::move(buffer_));
  } catch (const std::bad_alloc&) {  // no room to keep it: the buffer frees its memory
  }
}

void HostScratch::release_all() {
  const std::lock_guard lock(scratch_pool().mutex);
  scratch_pool().free.clear();
}

}  // namespace longspan
