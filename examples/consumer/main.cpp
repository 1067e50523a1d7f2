// Two packed documents of 3 and 5 tokens, each token seeing its own document's past: the mask as bands, its
// area, and what one row sees.
#include <cstdio>

#include "base/build_info.h"
#include "mask/mask.h"

int main() {
  using namespace longspan;
  const Mask mask(8, 8, {{{0, 3}, {0, 3}, kUnboundedBelow, 0}, {{3, 8}, {3, 8}, kUnboundedBelow, 0}});
  std::printf("longspan %s: %lld visible pairs\n", build_info().version.data(),
              static_cast<long long>(mask.area()));
  for (const Range& keys : mask.visible_keys(5))
    std::printf("row 5 sees keys %lld to %lld\n", static_cast<long long>(keys.begin),
                static_cast<long long>(keys.end - 1));
}
