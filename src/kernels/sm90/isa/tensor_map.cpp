#include "kernels/sm90/isa/tensor_map.h"

#include <cuda_runtime_api.h>

#include "base/cuda/cuda_check.h"
#include "base/error.h"

namespace longspan::sm90 {
namespace {

constexpr int kPanel = 64;  // 16-bit elements in a row of 128 bytes

// The driver's encoder, looked up through the runtime, so that nothing links the driver.
auto encoder() {
  static const auto function = [] {
    void* pointer = nullptr;
    cudaDriverEntryPointQueryResult found;
    LONGSPAN_CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &pointer, 12000,
                                                   cudaEnableDefault, &found));
    LONGSPAN_CHECK(found == cudaDriverEntryPointSuccess,
                   "this driver has no cuTensorMapEncodeTiled (CUDA 12.0)");
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(pointer);
  }();
  return function;
}

struct Dimension {
  int64_t size, stride, box;  // stride in elements; 1 for the first dimension
};

CUtensorMap encode(const TensorView& tensor, const Dimension (&dimensions)[4]) {
  cuuint64_t sizes[4], strides[3];
  cuuint32_t box[4], steps[4] = {1, 1, 1, 1};
  for (int i = 0; i < 4; ++i) {
    sizes[i] = static_cast<cuuint64_t>(dimensions[i].size);
    box[i] = static_cast<cuuint32_t>(dimensions[i].box);
    if (i > 0) strides[i - 1] = static_cast<cuuint64_t>(dimensions[i].stride) * size_of(tensor.dtype);
  }
  CUtensorMap map;
  const CUresult status = encoder()(
      &map, tensor.dtype == DType::kF16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
      4, tensor.data, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  LONGSPAN_CHECK(status == CUDA_SUCCESS,
                 "cuTensorMapEncodeTiled: error {} for a tensor of {} tokens, {} heads, head_dim {} at {}, "
                 "strides {} {}",
                 static_cast<int>(status), tensor.tokens, tensor.heads, tensor.head_dim, tensor.data,
                 tensor.token_stride, tensor.head_stride);
  return map;
}

}  // namespace

CUtensorMap query_map(const TensorView& t, int tokens, int heads, Panels panels) {
  const int64_t all = t.head_dim / kPanel;
  return encode(t, {{kPanel, 1, kPanel},
                    {t.heads, t.head_stride, heads},
                    {t.tokens, t.token_stride, tokens},
                    {all, kPanel, panels == Panels::kOne ? 1 : all}});
}

CUtensorMap key_map(const TensorView& t, int tokens, Panels panels) {
  const int64_t all = t.head_dim / kPanel;
  return encode(t, {{kPanel, 1, kPanel},
                    {t.tokens, t.token_stride, tokens},
                    {all, kPanel, panels == Panels::kOne ? 1 : all},
                    {t.heads, t.head_stride, 1}});
}

}  // namespace longspan::sm90
