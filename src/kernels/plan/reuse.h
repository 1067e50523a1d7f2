// Which visits to rows of memory find them in a cache, in a simulation of a kernel. Host code without CUDA.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace longspan::plan {

// How long rows wait for their next visit, which tells how many visits find them in the cache.
class Reuse {
 public:
  // A visit to rows that were visited `wait` ago; 0: never before.
  void add(double wait) {
    ++visits_;
    // Eight bins for each power of two: the sign, the exponent and three bits of the mantissa.
    if (wait > 0) ++counts_[std::bit_cast<uint32_t>(static_cast<float>(wait)) >> 20];
  }

  // The share of visits whose rows are not in the cache, first visits among them. The cache has lost what was
  // not visited for so long that as much was loaded since as it holds, the rows of `capacity` visits.
  double missed(double capacity, double visits_at_a_time) const {
    int64_t found = 0;
    double share = 1;
    for (size_t bin = 0; bin < counts_.size(); ++bin) {
      share = 1 - static_cast<double>(found) / static_cast<double>(std::max<int64_t>(visits_, 1));
      const double wait = std::bit_cast<float>(static_cast<uint32_t>(bin) << 20);
      if (wait * share * visits_at_a_time >= capacity) break;
      found += counts_[bin];
    }
    return share;
  }

 private:
  int64_t visits_ = 0;
  std::vector<int64_t> counts_ = std::vector<int64_t>(0x7f8);  // up to infinity
};

}  // namespace longspan::plan
