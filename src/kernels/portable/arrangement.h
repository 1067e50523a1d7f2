// What the portable kernels need of a problem, made once for its mask, and the parameters of each call. Host
// code without CUDA, which the tests' emulation shares with the GPU.
#pragma once

#include <cstddef>
#include <string>

#include "attention/kernel.h"
#include "kernels/portable/map.h"
#include "kernels/portable/params.h"
#include "kernels/portable/shape.h"

namespace longspan::portable {

// Empty if the kernels take the problem on a GPU that they run on; otherwise the reason.
std::string unsupported_problem(const Problem& problem);

struct ForwardArrangement {
  ForwardShape shape;
  Heads heads;
  ItemOrder order;
  KernelMap map;
};
ForwardArrangement arrange_forward(const Problem& problem, const ForwardShape& shape, const Device& device);

// Offsets in a call's workspace.
struct BackwardWorkspace {
  size_t stats = 0, dq_sums = 0, dkv_sums = 0, arrived = 0, turns = 0, next_item = 0;
  size_t bytes = 0;
};

struct BackwardArrangement {
  BackwardShape shape;
  Heads heads;
  ItemOrder order;
  KernelMap map;
  int32_t query_tiles = 0, slots = 0;
  BackwardWorkspace workspace;
  bool in_turns = false;
};
BackwardArrangement arrange_backward(const Problem& problem, const BackwardShape& shape,
                                     const Device& device);

// The parameters of one call, apart from the map's pointers: `view_of(map)` or those of its copy on a device.
// `slopes`: of ALiBi, in the same memory; null without.
MapView view_of(const KernelMap& map);
ForwardParams forward_params(const Problem& problem, const ForwardArrangement& arrangement,
                             const MapView& map, const ForwardArgs& args, const float* slopes = nullptr);
BackwardParams backward_params(const Problem& problem, const BackwardArrangement& arrangement,
                               const MapView& map, const BackwardArgs& args, const float* slopes = nullptr);

}  // namespace longspan::portable
