// Draws or reads the masks of a case one after another, and makes a picture of a mask.
#pragma once

#include <cstdint>

#include "bench/spec/case.h"
#include "mask/patterns/patterns.h"
#include "record/record.h"

namespace longspan::bench {

class MaskSource {
 public:
  explicit MaskSource(const Case& c);

  // Mask 0, 1, ... of the case's seed. For a mask file, the same mask on every call.
  DrawnMask next();

 private:
  const Case& case_;
  Mt19937 generator_;
  int64_t index_ = 0;
};

record::Picture picture_of(const Mask& mask);

}  // namespace longspan::bench
