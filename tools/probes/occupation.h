// A kernel that occupies all multiprocessors of a GPU until it is told to end.
#pragma once

#include <cstdint>

#include "longspan/base.h"

namespace longspan {

class Occupation {
 public:
  Occupation();   // of the current device
  ~Occupation();  // waits for the kernel
  Occupation(const Occupation&) = delete;
  Occupation& operator=(const Occupation&) = delete;

  void begin(Stream stream);
  void end();  // ends by itself after ten seconds

 private:
  uint32_t* ended_ = nullptr;  // in host memory that the kernel reads
};

}  // namespace longspan
