"""torch-efficient: the memory-efficient attention of PyTorch (CUTLASS). Documents natively, other masks as a dense bias."""

PEER = {
    "description": "memory-efficient attention in PyTorch",
    "framework": "torch",
    "package": "torch",
    "device": "cuda",
    "passes": ["forward", "backward"],
    "masks": "full, causal, documents; others as a dense bias",
    "colour": "#a87700",
}

import torch

from support.adapter import Peer, Plan, Unsupported, need_dtype, need_seen_rows, one_mask
from support.bias import dense_bias
from support.packed import unpacked_lse
from support.torch_device import DTYPES

NO_MASK, CAUSAL = 0, 1  # its custom_mask_type; causal from the top left


class EfficientPlan(Plan):
    def __init__(self, problem, causal, bias, boundaries):
        self.problem, self.bias, self.boundaries = problem, bias, boundaries
        self.type = CAUSAL if causal else NO_MASK
        if bias is not None:
            self.bias = bias.expand(1, problem.heads_q, -1, -1)
            self.settings = "dense bias"
        self.longest = None if boundaries is None else int((boundaries[1:] - boundaries[:-1]).max())

    def _repeated(self, tensor):  # it does not support GQA: its users repeat the KV heads
        return tensor.repeat_interleave(self.problem.group, dim=1) if self.problem.group > 1 else tensor

    def forward(self, q, k, v):
        self.saved = tuple(x.unsqueeze(0) for x in (q, self._repeated(k), self._repeated(v)))
        self.result = torch.ops.aten._efficient_attention_forward(
            *self.saved, self.bias, self.boundaries, self.boundaries, self.longest, self.longest, 0.0, self.type, True,
            scale=self.problem.scale)
        return self.result[0][0]

    def lse(self):  # its own is [sequences, heads, longest, rounded up]
        lse = self.result[1]
        if self.boundaries is None:
            return lse[0, :, : self.problem.tokens_q]
        return unpacked_lse(lse, self.boundaries, self.problem.tokens_q)

    def backward(self, dout):
        o, lse, seed, offset, longest_q, longest_k = self.result
        dq, dk, dv, _ = torch.ops.aten._efficient_attention_backward(
            dout.unsqueeze(0), *self.saved, self.bias, o, self.boundaries, self.boundaries, longest_q, longest_k, lse, 0.0,
            seed, offset, self.type, False, scale=self.problem.scale)
        if self.problem.group > 1:
            dk, dv = (g.unflatten(2, (self.problem.heads_kv, self.problem.group)).sum(3) for g in (dk, dv))
        return dq[0], dk[0], dv[0]


class Adapter(Peer):
    heeds_deterministic = True
    takes_head_dim_v = True

    def versions(self):
        return {"torch": torch.__version__}

    def plan(self, problem, masks, device):
        need_dtype(problem, "bf16", "f16", "f32")
        if problem.deterministic and problem.backward:
            raise Unsupported("its backward pass is not deterministic through this interface")
        mask = one_mask(masks)
        need_seen_rows(mask)
        if mask.is_full() or mask.is_causal():
            return EfficientPlan(problem, mask.is_causal(), None, None)
        if documents := mask.documents():
            boundaries = torch.tensor(documents[0], dtype=torch.int32, device=device)
            return EfficientPlan(problem, documents[1], None, boundaries)
        return EfficientPlan(problem, False, dense_bias(mask, DTYPES[problem.dtype], device), None)
