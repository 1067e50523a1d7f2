"""cudnn-flex: cuDNN's attention over intervals of keys (nvidia-cudnn-frontend, cudnn.flex_attention). It supports every mask."""

PEER = {
    "description": "cuDNN's interval attention (nvidia-cudnn-frontend)",
    "framework": "torch",
    "package": "nvidia-cudnn-frontend",
    "device": "cuda",
    "passes": ["forward", "backward"],
    "masks": "all",
    "colour": "#3d6b35",
}

import importlib.metadata

import numpy as np
import torch
from cudnn.flex_attention import create_mask_plan, flex_attn_func

from support.adapter import Peer, Plan, Unsupported, need_dtype

MOST_INTERVALS = 64  # of a row: a table of more takes longer to make than attention


def ends_of_intervals(masks, heads_q):
    """int32 [1 or heads_q, odd, rows]: a row sees [0, F0), [F1, F2), [F3, F4), ..."""
    parts = [mask.joined_row_intervals() for mask in masks]
    slots = max(len(begin) for begin, _ in parts)
    if slots > MOST_INTERVALS:
        raise Unsupported(f"takes up to {MOST_INTERVALS} intervals of keys a row here, and this mask has {slots}")
    tables = []
    for mask, (begin, end) in zip(masks, parts):
        more = ((0, slots - len(begin)), (0, 0))
        begin, end = np.pad(begin, more), np.pad(end, more)
        unused = begin >= end
        begin[unused] = end[unused] = mask.columns
        tables.append(np.stack([begin, end], axis=1).reshape(2 * slots, mask.rows))
    tables = np.stack(tables).astype(np.int32)
    from_first_key = (tables[:, 0] == 0) | (tables[:, 0] == tables[:, 1])
    if from_first_key.all():  # the first interval needs no begin
        empty = tables[:, 0] == tables[:, 1]
        tables[:, 1][empty] = 0
        tables = tables[:, 1:]
    else:
        tables = np.concatenate([np.zeros_like(tables[:, :1]), tables], axis=1)
    return tables.repeat(heads_q // len(masks), axis=0) if len(masks) > 1 else tables


class IntervalPlan(Plan):
    def __init__(self, problem, masks, device):
        self.problem = problem
        self.table = torch.tensor(ends_of_intervals(masks, problem.heads_q), device=device).contiguous()
        dtype = {"bf16": torch.bfloat16, "f16": torch.float16}[problem.dtype]
        like = lambda tokens, heads: torch.empty(1, tokens, heads, problem.head_dim, dtype=dtype, device=device)
        keys = like(problem.tokens_kv, problem.heads_kv)
        self.plan = create_mask_plan(self.table, like(problem.tokens_q, problem.heads_q), keys, keys,
                                     build_backward=problem.backward)

    def forward(self, q, k, v):
        self.inputs = [x.detach().unsqueeze(0).requires_grad_(self.problem.backward) for x in (q, k, v)]
        self.o, self._lse = flex_attn_func(*self.inputs, mask_plan=self.plan, softmax_scale=self.problem.scale,
                                           deterministic=self.problem.deterministic, return_lse=True)
        return self.o.detach()[0]

    def lse(self):
        return self._lse.detach()[0]

    def backward(self, dout):
        gradients = torch.autograd.grad(self.o, self.inputs, dout.unsqueeze(0), retain_graph=True)
        return tuple(g[0] for g in gradients)


class Adapter(Peer):
    heeds_deterministic = True

    def versions(self):
        return {name: importlib.metadata.version(name) for name in ("nvidia-cudnn-frontend", "nvidia-cutlass-dsl")}

    def check(self, problem, masks, device):
        need_dtype(problem, "bf16", "f16")
        ends_of_intervals(masks, problem.heads_q)

    def plan(self, problem, masks, device):
        need_dtype(problem, "bf16", "f16")
        try:
            return IntervalPlan(problem, masks, device)
        except NotImplementedError as error:
            raise Unsupported(str(error).split("\n")[0])
