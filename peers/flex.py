"""flex: PyTorch's FlexAttention, compiled, with a block mask. It takes every mask."""

import numpy as np
import torch
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, create_block_mask, flex_attention

from support.adapter import Plan, Unsupported, need_dtype


def _formula(mask, device):
    """The mask as a function of indices, in the shortest form that is exactly it; None for all pairs."""
    if mask.is_full():
        return None
    if mask.is_causal():
        return lambda b, h, q, k: q >= k
    if window := mask.window():
        left, right = window
        if right < 0:
            return lambda b, h, q, k: q - k <= left
        if left < 0:
            return lambda b, h, q, k: k - q <= right
        return lambda b, h, q, k: (q - k <= left) & (k - q <= right)
    if documents := mask.documents():
        boundaries, causal = documents
        owner = torch.tensor(np.repeat(np.arange(len(boundaries) - 1), np.diff(boundaries)), device=device)
        if causal:
            return lambda b, h, q, k: (q >= k) & (owner[q] == owner[k])
        return lambda b, h, q, k: owner[q] == owner[k]
    begin, end = (torch.tensor(x, dtype=torch.int32, device=device) for x in mask.row_intervals())

    def sees(b, h, q, k):
        seen = (k >= begin[0][q]) & (k < end[0][q])
        for slot in range(1, len(begin)):
            seen = seen | ((k >= begin[slot][q]) & (k < end[slot][q]))
        return seen

    return sees


def _block_mask(grids, size, problem, device):
    """A block mask whose visible blocks are all full, from one grid a KV head."""
    grid = torch.tensor(np.stack(grids), device=device).repeat_interleave(problem.heads_q // len(grids), dim=0)
    count = grid.sum(-1, dtype=torch.int32)
    indices = torch.argsort(grid.to(torch.int8), dim=-1, descending=True, stable=True).to(torch.int32)
    none = torch.zeros_like(count)
    return BlockMask.from_kv_blocks(
        none[None], torch.zeros_like(indices)[None], count[None], indices[None], BLOCK_SIZE=size,
        seq_lengths=(problem.tokens_q, problem.tokens_kv))


class FlexPlan(Plan):
    def __init__(self, problem, block_mask, options):
        self.problem, self.block_mask, self.options = problem, block_mask, options
        self.settings = ", ".join(f"{name} {value}" for name, value in (options or {}).items())
        torch._dynamo.reset()  # each plan compiles for its own mask; what earlier ones left counts against a limit
        self.function = torch.compile(flex_attention, dynamic=False, fullgraph=True)

    def forward(self, q, k, v):
        inputs = [x.detach().unsqueeze(0).transpose(1, 2).requires_grad_(self.problem.backward) for x in (q, k, v)]
        self.o, self.aux = self.function(
            *inputs, block_mask=self.block_mask, scale=self.problem.scale, enable_gqa=self.problem.group > 1,
            kernel_options=self.options, return_aux=AuxRequest(lse=True))
        self.inputs = inputs
        return self.o.detach()[0].transpose(0, 1)

    def lse(self):
        return self.aux.lse.detach()[0]

    def backward(self, dout):
        gradients = torch.autograd.grad(self.o, self.inputs, dout.unsqueeze(0).transpose(1, 2), retain_graph=True)
        return tuple(g[0].transpose(0, 1) for g in gradients)


class Adapter:
    def versions(self):
        import triton

        return {"torch": torch.__version__, "triton": triton.__version__}

    def plan(self, problem, masks, device):
        need_dtype(problem, "bf16", "f16", "f32")
        for size in (128, 64):
            grids = [mask.blocks(size) for mask in masks]
            if not masks[0].is_full() and all(grid is not None for grid in grids):
                # Blocks of 64 need tiles of 64; at 128 its own choice of tiles stands.
                names = ("BLOCK_M", "BLOCK_N", "BLOCK_M1", "BLOCK_N1", "BLOCK_M2", "BLOCK_N2")
                options = None if size == 128 else dict.fromkeys(names, 64)
                return FlexPlan(problem, _block_mask(grids, size, problem, device), options)
        if len(masks) > 1:
            raise Unsupported("masks that differ by head must be made of blocks of 64 or 128")
        formula = _formula(masks[0], device)
        if formula is None:
            return FlexPlan(problem, None, None)
        block_mask = create_block_mask(
            formula, None, None, problem.tokens_q, problem.tokens_kv, device=str(device), _compile=True)
        return FlexPlan(problem, block_mask, None)
