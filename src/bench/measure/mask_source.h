// The masks of a case, one after the other, and a picture of one.
#pragma once

#include <cstdint>

#include "bench/spec/case.h"
#include "mask/patterns/patterns.h"
#include "record/record.h"

namespace longspan::bench {

class MaskSource {
 public:
  explicit MaskSource(const Case& c);

  // Mask 0, 1, ... of the case's seed; or the mask of its file, every time.
  DrawnMask next();

 private:
  const Case& case_;
  Mt19937 generator_;
  int64_t index_ = 0;
};

record::Picture picture_of(const Mask& mask);

}  // namespace longspan::bench
