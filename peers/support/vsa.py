"""Video Sparse Attention's kernels (fastvideo-kernel): blocks of 64 x 64, a list of key blocks for each query block."""

import math

import numpy as np
import torch

from support.adapter import Peer, Plan, Unsupported, need_dtype

SIZE = 64


class VsaPlan(Plan):
    settings = "inputs copied to [heads, tokens, head_dim] outside the timed region"

    def __init__(self, problem, grids, function, lse_of, device):
        self.problem, self.function, self.lse_of = problem, function, lse_of
        grid = torch.tensor(np.stack(grids), device=device).repeat_interleave(problem.heads_q // len(grids), dim=0)
        self.number = grid.sum(-1, dtype=torch.int32)[None].contiguous()
        order = torch.argsort(grid.to(torch.int8), dim=-1, descending=True, stable=True).to(torch.int32)
        self.indices = order[None, :, :, : int(self.number.max())].contiguous()
        self.sizes = torch.full((problem.tokens_kv // SIZE,), SIZE, dtype=torch.int32, device=device)

    def prepare(self, q, k, v, dout):
        own = lambda x: None if x is None else x.detach().transpose(0, 1).unsqueeze(0).contiguous()
        self.q, self.k, self.v, self.dout = own(q), own(k), own(v), own(dout)

    def forward(self, q, k, v):
        self.inputs = [x.requires_grad_(self.problem.backward) for x in (self.q, self.k, self.v)]
        group = self.problem.group  # its kernels do not support GQA: KV heads are repeated, inside the timed region
        k, v = (x.repeat_interleave(group, dim=1) if group > 1 else x for x in self.inputs[1:])
        self.o, self.statistics = self.function(self.inputs[0], k, v, self.indices, self.number, self.sizes)
        return self.o.detach()[0].transpose(0, 1)

    def lse(self):
        return self.lse_of(self.statistics.detach())[0].reshape(self.problem.heads_q, self.problem.tokens_q)

    def backward(self, dout):
        gradients = torch.autograd.grad(self.o, self.inputs, self.dout, retain_graph=True)
        return tuple(g[0].transpose(0, 1) for g in gradients)


def check(problem, masks):
    """The grids of the masks, if the kernels support them."""
    need_dtype(problem, "bf16")
    if problem.head_dim not in (64, 128) or abs(problem.scale * math.sqrt(problem.head_dim) - 1) > 1e-6:
        raise Unsupported("supports only head_dim 64 and 128, and the scale 1 / sqrt(head_dim)")
    if problem.deterministic and problem.backward:
        raise Unsupported("its backward pass is not deterministic")
    grids = [mask.blocks(SIZE) for mask in masks]
    if any(grid is None for grid in grids):
        raise Unsupported("supports only masks of 64 x 64 blocks")
    if not all(grid.any(1).all() for grid in grids):
        raise Unsupported("gives no result for rows that see no key")
    return grids


class VsaPeer(Peer):
    heeds_deterministic = True

    def check(self, problem, masks, device):
        check(problem, masks)


def plan(problem, masks, function, lse_of, device):
    return VsaPlan(problem, check(problem, masks), function, lse_of, device)
