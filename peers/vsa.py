"""vsa: Video Sparse Attention's ThunderKittens kernels for Hopper (fastvideo-kernel)."""

PEER = {
    "description": "Video Sparse Attention for Hopper (fastvideo-kernel)",
    "framework": "torch",
    "package": "fastvideo-kernel",
    "device": "cuda",
    "passes": ["forward", "backward"],
    "masks": "blocks of 64 x 64",
    "colour": "#00767d",
}

from fastvideo_kernel._C import fastvideo_kernel_ops  # fails here with a message if the package was built for another PyTorch
from fastvideo_kernel.block_sparse_attn import block_sparse_attn_sm90

from support import vsa


class Adapter(vsa.VsaPeer):
    def plan(self, problem, masks, device):
        assert hasattr(fastvideo_kernel_ops, "block_sparse_fwd"), "the package has no kernels for this GPU"
        # It keeps -lse / scale, for its own backward pass.
        plan = vsa.plan(problem, masks, block_sparse_attn_sm90, lambda kept: -kept * problem.scale, device)
        plan.drift_keys = vsa.SIZE  # its rescaling subtracts a rounded product from an unrounded one
        return plan
