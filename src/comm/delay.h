// A delay in a stream, which lets other streams start first.
#pragma once

#include "longspan/base.h"

namespace longspan {

// Blocks the stream for this time with a one-thread kernel on the current device.
void delay(Stream stream, double seconds);

}  // namespace longspan
