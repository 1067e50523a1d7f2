// For programs that carry libstdc++: its strings pull in std::random_device, whose arc4random is the one
// function that a program built on Debian 12 would need of glibc 2.36. With this one it runs on Ubuntu 22.04,
// too.
#include <cstdint>

#include "base/random_bits.h"

extern "C" uint32_t arc4random() {
  return static_cast<uint32_t>(longspan::random_bits());
}
