#include "peers/peers.h"

#include <memory>
#include <string_view>
#include <vector>

#include "peers/peer_kernel.h"

namespace longspan {
namespace {

struct Row {
  std::string_view name, description;
};
constexpr Row kRows[] = {
    {"torch-fa2", "FlashAttention-2 in PyTorch: full, causal, windows, documents"},
    {"torch-cudnn", "cuDNN in PyTorch: full, causal; other masks as a dense bias"},
    {"torch-efficient", "memory-efficient attention in PyTorch: documents; other masks as a dense bias"},
    {"torch-math", "PyTorch's products and softmax, scores in memory: every mask"},
    {"flex", "PyTorch's FlexAttention, compiled: every mask"},
    {"fa2", "FlashAttention-2 (flash_attn): full, causal, windows, documents"},
    {"fa3", "FlashAttention-3 (flash_attn_interface): full, causal, windows, documents"},
    {"fa4", "FlashAttention-4 (flash_attn.cute): all patterns, most of them by lists of tiles"},
    {"cudnn-fe", "cuDNN by its own front-end: full, causal, windows, documents"},
    {"flash-infer", "FlashInfer: full, causal, causal windows, documents, blocks; forward alone"},
    {"flashmask", "FlashMask in PaddlePaddle: all dense patterns, 128 x 128 blocks"},
    {"fa2-sparse", "block-sparse FlashAttention-2 (block_sparse_attn): 128 x 128 blocks"},
    {"vsa", "Video Sparse Attention for Hopper (fastvideo-kernel): 64 x 64 blocks"},
    {"vsa-triton", "Video Sparse Attention in Triton: 64 x 64 blocks"},
};

}  // namespace

std::span<const Kernel* const> peer_kernels() {
  static const std::vector<std::unique_ptr<Kernel>> owned = [] {
    std::vector<std::unique_ptr<Kernel>> kernels;
    for (const Row& row : kRows)
      kernels.push_back(make_peer_kernel(row.name, row.description, DeviceKind::kCuda));
    return kernels;
  }();
  static const std::vector<const Kernel*> table = [] {
    std::vector<const Kernel*> kernels;
    for (const auto& kernel : owned) kernels.push_back(kernel.get());
    return kernels;
  }();
  return table;
}

}  // namespace longspan
