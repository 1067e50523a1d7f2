"""vsa-triton: Video Sparse Attention's Triton kernels (fastvideo-kernel)."""

PEER = {
    "description": "Video Sparse Attention in Triton (fastvideo-kernel)",
    "framework": "torch",
    "package": "fastvideo-kernel",
    "device": "cuda",
    "passes": ["forward", "backward"],
    "masks": "blocks of 64 x 64",
    "colour": "#00767d",
}

import math

from fastvideo_kernel.block_sparse_attn import block_sparse_attn_triton

from support import vsa


class Adapter(vsa.VsaPeer):
    def plan(self, problem, masks, device):
        # It stores the base-2 logarithm.
        return vsa.plan(problem, masks, block_sparse_attn_triton, lambda kept: kept * math.log(2), device)
