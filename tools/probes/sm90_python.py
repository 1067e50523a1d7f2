"""sm90-python: Longspan's own kernels, called as a model calls them, through longspan.attention and autograd.

    longspan run --peer tools/probes/sm90_python.py --kernel sm90,sm90-python --mask full,causal,causal_document --seqlen 8K,32K \\
      --heads 32:8 --dtype bf16 --direction fwd,bwd

where the interpreter has the package longspan; otherwise LONGSPAN_PYTHONPATH names its folder, such as build-cuda/python.
"""

PEER = {
    "description": "longspan.attention, called from PyTorch",
    "framework": "torch",
    "package": "torch",
    "device": "cuda",
    "passes": ["forward", "backward"],
    "masks": "all",
    "colour": "#555555",
}

import longspan
import torch

from support.adapter import Peer, Plan, need_dtype
from support.masks import FAR


class PythonPlan(Plan):
    def __init__(self, problem, mask):
        self.problem = problem
        self.plan = longspan.plan(mask, (problem.heads_q, problem.heads_kv), problem.head_dim,
                                  {"bf16": torch.bfloat16, "f16": torch.float16}[problem.dtype], "cuda", scale=problem.scale,
                                  deterministic=problem.deterministic, backward=problem.backward)

    def forward(self, q, k, v):
        with torch.enable_grad():
            self.inputs = [x.detach().requires_grad_(self.problem.backward) for x in (q, k, v)]
            self.o, self._lse = longspan.attention(*self.inputs, self.plan, return_lse=True)
        return self.o.detach()

    def lse(self):
        return self._lse.detach()

    def backward(self, dout):
        return torch.autograd.grad(self.o, self.inputs, dout, retain_graph=True)


class Adapter(Peer):
    heeds_deterministic = True

    def plan(self, problem, masks, device):
        need_dtype(problem, "bf16", "f16")
        low, high = longspan.Mask.UNBOUNDED_BELOW, longspan.Mask.UNBOUNDED_ABOVE
        parts = [longspan.Mask.from_bands([(*band[:4], low if band[4] <= -FAR else band[4], high if band[5] >= FAR else band[5])
                                           for band in mask.bands.tolist()], problem.tokens_q, problem.tokens_kv)
                 for mask in masks]
        return PythonPlan(problem, parts[0] if len(parts) == 1 else longspan.Mask.per_head(parts))
