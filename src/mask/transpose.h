// The bands of a mask with rows and columns exchanged.
#pragma once

#include "mask/band_list.h"

namespace longspan {

Band flipped(const Band& band);

// Of bands sorted as a mask's are; so is the result. Takes little memory beyond it.
BandList transposed(const BandList& bands, int64_t columns);

}  // namespace longspan
