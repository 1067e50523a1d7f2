#include "kernels/portable/choose_shape.h"

#include <algorithm>

#include "base/ceil_div.h"
#include "base/error.h"
#include "kernels/portable/tuning/generic.h"
#include "kernels/portable/tuning/h200.h"

namespace longspan::portable {
namespace {

template <class Shapes>
auto first_that_fits(const Shapes& shapes, const Problem& problem, const Device& device) {
  const int64_t head_dim = std::max(problem.head_dim, problem.dim_v());
  const auto found = std::find_if(std::begin(shapes), std::end(shapes), [&](const auto& shape) {
    return shape.head_dim >= head_dim && shape.shared_bytes() <= most_shared_bytes(device.capability);
  });
  LONGSPAN_CHECK(found != std::end(shapes), "no instance of the portable kernel has head_dim {}", head_dim);
  return *found;
}

}  // namespace

int choose_pack(const Problem& problem) {
  int64_t pack = 1;
  while (2 * pack <= generic::kMostPack && problem.group_size() % (2 * pack) == 0) pack *= 2;
  return static_cast<int>(pack);
}

ForwardShape choose_forward_shape(const Problem& problem, const Device& device) {
  return device.capability == 90 ? first_that_fits(h200::kForwardShapes, problem, device)
                                 : first_that_fits(generic::kForwardShapes, problem, device);
}

BackwardShape choose_backward_shape(const Problem& problem, const Device& device) {
  return device.capability == 90 ? first_that_fits(h200::kBackwardShapes, problem, device)
                                 : first_that_fits(generic::kBackwardShapes, problem, device);
}

int32_t choose_section(int64_t heads, int64_t bytes, const Device& device) {
  const int64_t share = static_cast<int64_t>(device.cache_bytes) / generic::kSectionL2Divisor;
  const int64_t most = std::clamp<int64_t>(share / std::max<int64_t>(bytes, 1), 1, heads);
  const int64_t sections = ceil_div(heads, most);
  return static_cast<int32_t>(ceil_div(heads, sections));
}

int32_t choose_segments(const Problem& problem, const BackwardShape& shape, const Device& device) {
  const int64_t key_tiles = ceil_div(problem.tokens_kv, shape.keys);
  if (problem.deterministic || key_tiles * problem.heads_kv < device.units) return 1;
  const int64_t row_bytes = shape.head_dim * (2 * static_cast<int64_t>(size_of(problem.dtype)) + 4);
  const int64_t bytes = problem.tokens_q * problem.group_size() * row_bytes;
  const auto cache_bytes = static_cast<int64_t>(device.cache_bytes);
  if (bytes <= cache_bytes) return 1;
  const int64_t share = cache_bytes / generic::kSegmentL2Divisor;
  const int64_t segments = bytes / std::max<int64_t>(share, 1) + 1;
  return static_cast<int32_t>(std::clamp<int64_t>(segments, 1, shape.segments));
}

// A thread has up to 255 registers, so eight warps fill a multiprocessor. Each CTA takes a KiB of shared
// memory more, and most_shared_bytes leaves room for one.
int ctas_of_unit(const BackwardShape& shape, int capability) {
  constexpr uint32_t kOfCta = 1024;
  const uint32_t by_memory = (most_shared_bytes(capability) + kOfCta) / (shape.shared_bytes() + kOfCta);
  return std::max(1, std::min(8 / shape.warps, static_cast<int>(by_memory)));
}

// CUDA programming guide, "Technical specifications per compute capability": 99, 163 and 227 KB.
uint32_t most_shared_bytes(int capability) {
  switch (capability) {
    case 80:
    case 87:
      return 163 * 1024;
    case 90:
    case 100:
    case 103:
      return 227 * 1024;
    default:
      return 99 * 1024;
  }
}

}  // namespace longspan::portable
