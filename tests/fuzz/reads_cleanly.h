// A reader must turn any bytes into a value or an input error of one line. A crash, a sanitizer's
// report, another exception or a message of several lines is a finding.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/error.h"

namespace longspan {

template <class Read>
int reads_cleanly(const uint8_t* data, size_t size, Read&& read) {
  try {
    read(std::string_view(reinterpret_cast<const char*>(data), size));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput || std::strchr(error.what(), '\n') != nullptr) {
      std::fprintf(stderr, "not an input error of one line: %s\n", error.what());
      std::abort();
    }
  }
  return 0;
}

}  // namespace longspan
