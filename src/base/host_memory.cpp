#include "base/host_memory.h"

#include "base/backend.h"
#include "base/error.h"

namespace longspan {

void check_host_memory(double bytes, std::string_view what) {
  constexpr double kGiB = 1 << 30, kNegligible = kGiB / 16;
  if (bytes < kNegligible) return;  // reading the free memory takes longer than most masks
  const auto free = static_cast<double>(cpu_backend().free_bytes(0));
  if (free == 0 || bytes <= free) return;
  throw Error(ErrorKind::kOutOfMemory,
              fmt::format("out of memory: {} need about {:.3g} GiB, and {:.3g} GiB are free", what,
                          bytes / kGiB, free / kGiB),
              __FILE__, __LINE__, "memory");
}

}  // namespace longspan
