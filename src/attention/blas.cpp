#include "attention/blas.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include <cblas.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/error.h"
#include "base/parallel.h"

// Of OpenBLAS, not of every BLAS.
extern "C" [[gnu::weak]] void* blas_memory_alloc(int position);
extern "C" [[gnu::weak]] void blas_memory_free(void* buffer);

namespace longspan {
namespace {

constexpr size_t kBufferBytes = size_t{128} << 20;  // of OpenBLAS on x86-64; less elsewhere
constexpr int kMostBuffers = 64;                    // more would end the process

bool address_space_is_limited() {
  rlimit space{}, data{};
  getrlimit(RLIMIT_AS, &space);
  getrlimit(RLIMIT_DATA, &data);
  return space.rlim_cur != RLIM_INFINITY || data.rlim_cur != RLIM_INFINITY;
}

// Throws if `bytes` of address space are not there for OpenBLAS to take.
void check_address_space(size_t bytes, int threads) {
  void* const probe = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (probe == MAP_FAILED) {
    throw Error(ErrorKind::kOutOfMemory,
                fmt::format("out of memory: OpenBLAS needs {} MiB of address space for {} threads; raise its "
                            "limit (ulimit -v, ulimit -d), or set LONGSPAN_THREADS to fewer",
                            bytes >> 20, threads),
                __FILE__, __LINE__, "mmap");
  }
  munmap(probe, bytes);
}

// One buffer for each of `threads` concurrent callers, on top of those reserved before.
void reserve_buffers(int threads) {
  static int reserved = 0;
  threads = std::min(threads, kMostBuffers);
  if (threads <= reserved || blas_memory_alloc == nullptr || !address_space_is_limited()) return;
  check_address_space(static_cast<size_t>(threads - reserved) * kBufferBytes, threads);
  std::vector<void*> buffers;
  buffers.reserve(static_cast<size_t>(threads));
  for (int i = 0; i < threads; ++i) buffers.push_back(blas_memory_alloc(0));
  for (void* buffer : buffers) blas_memory_free(buffer);  // kept by OpenBLAS
  reserved = threads;
}

size_t stack_bytes() {
  pthread_attr_t attributes;
  size_t bytes = 0;
  pthread_attr_init(&attributes);
  pthread_attr_getstacksize(&attributes, &bytes);
  pthread_attr_destroy(&attributes);
  return bytes;
}

}  // namespace

void prepare_blas() {
  static std::mutex mutex;
  static int callers = 0;
  thread_local bool prepared = false;
  if (prepared) return;
  const std::scoped_lock lock(mutex);
  if (callers == 0) openblas_set_num_threads(1);
  ++callers;
  reserve_buffers(std::max(thread_count(), callers) + 1);
  prepared = true;
}

BlasThreads::BlasThreads(int threads) {
  prepare_blas();
  if (threads > 1 && address_space_is_limited())
    check_address_space(static_cast<size_t>(threads) * stack_bytes(), threads);  // one more than it starts
  openblas_set_num_threads(threads);
}

BlasThreads::~BlasThreads() {
  openblas_set_num_threads(1);
}

}  // namespace longspan
