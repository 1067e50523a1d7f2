#include "base/random_bits.h"

#include <cerrno>
#include <cstring>

#include <sys/random.h>

#include "base/error.h"

namespace longspan {

uint64_t random_bits() {
  uint64_t bits = 0;
  ssize_t got = 0;
  do got = getrandom(&bits, sizeof bits, 0);
  while (got < 0 && errno == EINTR);
  LONGSPAN_CHECK(got == static_cast<ssize_t>(sizeof bits), "the system gives no random bits: {}",
                 std::strerror(errno));
  return bits;
}

}  // namespace longspan
