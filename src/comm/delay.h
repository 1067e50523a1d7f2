// A stream that lets others go first.
#pragma once

#include "base/device.h"

namespace longspan {

// The stream does nothing for so long: one thread of the current device waits.
void delay(Stream stream, double seconds);

}  // namespace longspan
