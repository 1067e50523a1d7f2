// The bands of a mask with rows and columns exchanged.
#pragma once

#include "mask/band_list.h"

namespace longspan {

Band flipped(const Band& band);

// Input and result are sorted in the order of a mask. Needs little memory beyond the result.
BandList transposed(const BandList& bands, int64_t columns);

}  // namespace longspan
