// The kernel behind a name of the public face.
#pragma once

#include <string_view>

#include "attention/kernel.h"

namespace longspan {

// The kernel of that name, or for "auto" the fastest that can do the passes up to `until`. Throws an input
// error for an unknown name or a problem that is wrong, and one of kind kUnsupported with the reasons where
// it cannot be done.
const Kernel& find_kernel(const Problem& problem, const Device& device, Direction until,
                          std::string_view name);

}  // namespace longspan
