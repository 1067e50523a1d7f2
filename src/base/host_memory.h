// Refuses work that does not fit in this machine's memory, before any of it is done.
#pragma once

#include <string_view>

namespace longspan {

// Throws kOutOfMemory if `bytes`, an estimate, exceed the free memory: "out of memory: 1M tokens in blocks of
// 1 need about 96 GiB, and 7.5 GiB are free". `what` is a plural.
void check_host_memory(double bytes, std::string_view what);

}  // namespace longspan
