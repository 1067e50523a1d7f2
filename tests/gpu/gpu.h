// The device that a GPU test runs on.
#pragma once

#include <gtest/gtest.h>

#include "longspan/base.h"

namespace longspan {

// The first CUDA device. Call LONGSPAN_NEEDS_GPU() first.
inline Device first_gpu() {
  for (const Device& device : devices()) {
    if (device.kind == DeviceKind::kCuda) return device;
  }
  return {};
}

}  // namespace longspan

// Skips the test, with the reason, if there is no GPU.
#define LONGSPAN_NEEDS_GPU() \
  if (const std::string reason = ::longspan::no_cuda_reason(); !reason.empty()) GTEST_SKIP() << reason
