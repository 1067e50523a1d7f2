"""cudnn-bsa: cuDNN's block-sparse attention for Hopper (nvidia-cudnn-frontend): blocks of 64 or 128 of each side."""

PEER = {
    "description": "cuDNN's block-sparse attention (nvidia-cudnn-frontend)",
    "framework": "torch",
    "package": "nvidia-cudnn-frontend",
    "device": "cuda",
    "passes": ["forward", "backward"],
    "masks": "blocks of 64 x 64 or 128 x 128",
    "colour": "#7a5230",
}

import importlib.metadata

import numpy as np
import torch
from cudnn.block_sparse_attention import block_sparse_attention_backward, block_sparse_attention_forward

from support.adapter import Peer, Plan, Unsupported, need_dtype


def check(problem, masks):
    """(block size, a grid of visible blocks for each mask)"""
    need_dtype(problem, "bf16", "f16")
    for size in (128, 64):
        grids = [mask.blocks(size) for mask in masks]
        if all(grid is not None for grid in grids):
            break
    else:
        raise Unsupported("supports only masks of blocks of 64 x 64 or 128 x 128")
    if problem.head_dim not in (64, 128):
        raise Unsupported("supports head_dim 64 and 128 here")
    if problem.backward and (problem.heads_q != problem.heads_kv or problem.dtype != "bf16" or problem.head_dim != 128):
        raise Unsupported("its backward pass supports only bf16, head_dim 128 and as many KV heads as query heads")
    if problem.backward and problem.deterministic:
        raise Unsupported("it does not promise a deterministic backward pass")
    return size, grids


class BlocksPlan(Plan):
    def __init__(self, problem, masks, device):
        size, grids = check(problem, masks)
        grid = torch.tensor(np.stack(grids), device=device).repeat_interleave(problem.heads_q // len(grids), dim=0)
        number = grid.sum(-1, dtype=torch.int32)[None].contiguous()
        order = torch.argsort(grid.to(torch.int8), dim=-1, descending=True, stable=True).to(torch.int32)
        self.options = {
            "q2k_block_index": order[None, :, :, : max(1, int(number.max()))].contiguous(), "q2k_block_nums": number,
            "sparse_block_size": size, "softmax_scale": problem.scale, "layout": "bshd"}
        self.forward_options = {"allow_empty_block_nums": bool((number == 0).any())}

    def forward(self, q, k, v):
        self.saved = [x.unsqueeze(0) for x in (q, k, v)]
        result = block_sparse_attention_forward(*self.saved, **self.options, **self.forward_options)
        self.o, self._lse = result["o_tensor"], result["lse_tensor"]
        return self.o[0]

    def lse(self):
        return self._lse[0]

    def backward(self, dout):
        result = block_sparse_attention_backward(dout.unsqueeze(0), *self.saved, self.o, self._lse, **self.options)
        return tuple(result[name][0] for name in ("dq_tensor", "dk_tensor", "dv_tensor"))


class Adapter(Peer):
    heeds_deterministic = True

    def versions(self):
        return {name: importlib.metadata.version(name) for name in ("nvidia-cudnn-frontend", "nvidia-cutlass-dsl")}

    def check(self, problem, masks, device):
        check(problem, masks)

    def plan(self, problem, masks, device):
        return BlocksPlan(problem, masks, device)
