"""fa2-sparse: block-sparse FlashAttention-2 (block_sparse_attn). Blocks of 128 x 128."""

PEER = {
    "description": "block-sparse FlashAttention-2 (block_sparse_attn)",
    "framework": "torch",
    "package": "block_sparse_attn",
    "device": "cuda",
    "passes": ["forward", "backward"],
    "masks": "blocks of 128 x 128",
    "colour": "#a87700",
}

import numpy as np
import torch
from block_sparse_attn import block_sparse_attn_func

from support.adapter import Peer, Plan, Unsupported, need_dtype

SIZE = 128


class BlockSparsePlan(Plan):
    def __init__(self, problem, grids, device):
        self.problem = problem
        grid = torch.tensor(np.stack(grids), device=device).repeat_interleave(problem.heads_q // len(grids), dim=0)
        tokens = torch.tensor([0, problem.tokens_q], dtype=torch.int32, device=device)
        # Type 1: each head has its own block mask. The package itself numbers them.
        self.arguments = (
            tokens, tokens, torch.ones(problem.heads_q, dtype=torch.int32, device=device), None, grid[None].contiguous(),
            problem.tokens_q, problem.tokens_kv, 0.0)

    def forward(self, q, k, v):
        self.inputs = [x.detach().requires_grad_(self.problem.backward) for x in (q, k, v)]
        self.o, self._lse, _ = block_sparse_attn_func(
            *self.inputs, *self.arguments, deterministic=self.problem.deterministic, softmax_scale=self.problem.scale,
            is_causal=False, return_attn_probs=True)
        return self.o.detach()

    def lse(self):  # [1, heads, tokens rounded up]
        return self._lse.detach()[0, :, : self.problem.tokens_q]

    def backward(self, dout):
        return torch.autograd.grad(self.o, self.inputs, dout, retain_graph=True)


class Adapter(Peer):
    heeds_deterministic = True

    def plan(self, problem, masks, device):
        need_dtype(problem, "bf16", "f16")
        if problem.tokens_q != problem.tokens_kv:
            raise Unsupported("supports only square masks")
        grids = [mask.blocks(SIZE) for mask in masks]
        if any(grid is None for grid in grids):
            raise Unsupported("supports only masks of 128 x 128 blocks")
        if not all(grid.any(1).all() for grid in grids):
            raise Unsupported("gives no result for rows that see no key")
        return BlockSparsePlan(problem, grids, device)
