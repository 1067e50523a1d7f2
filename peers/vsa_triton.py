"""vsa-triton: Video Sparse Attention's Triton kernels (fastvideo-kernel)."""

import importlib.metadata
import math

from fastvideo_kernel.block_sparse_attn import block_sparse_attn_triton

from support import vsa


class Adapter(vsa.VsaPeer):
    def versions(self):
        return {"fastvideo-kernel": importlib.metadata.version("fastvideo-kernel")}

    def plan(self, problem, masks, device):
        # It keeps the base-2 logarithm.
        return vsa.plan(problem, masks, block_sparse_attn_triton, lambda kept: kept * math.log(2), device)
