"""torch-math: attention composed by PyTorch from matrix products and a softmax. Materialises the scores."""

PEER = {
    "description": "PyTorch's matrix products and softmax, scores in memory",
    "framework": "torch",
    "package": "torch",
    "device": "cuda",
    "passes": ["forward", "backward"],
    "masks": "all",
    "colour": "#7a4a21",
}

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from support.adapter import Peer, Plan, need_dtype, need_seen_rows, one_mask


class MathPlan(Plan):
    def __init__(self, problem, causal, mask):
        self.problem, self.causal, self.mask = problem, causal, mask

    def forward(self, q, k, v):
        inputs = [x.detach().unsqueeze(0).transpose(1, 2).requires_grad_(self.problem.backward) for x in (q, k, v)]
        with sdpa_kernel(SDPBackend.MATH):
            o = scaled_dot_product_attention(
                *inputs, attn_mask=self.mask, is_causal=self.causal, scale=self.problem.scale,
                enable_gqa=self.problem.group > 1)
        self.inputs, self.o = inputs, o
        return o.detach()[0].transpose(0, 1)

    def lse(self):  # PyTorch does not expose it: recomputed, outside the kernel, only for the runner's verification
        q, k = (x.detach()[0].float() for x in self.inputs[:2])
        rows = []
        for head in range(len(q)):
            score = q[head] @ k[head // self.problem.group].T * self.problem.scale
            if self.causal:
                score.masked_fill_(torch.ones_like(score, dtype=torch.bool).triu_(1), float("-inf"))
            elif self.mask is not None:
                score.masked_fill_(~self.mask, float("-inf"))
            rows.append(torch.logsumexp(score, -1))
        return torch.stack(rows)

    def backward(self, dout):
        gradients = torch.autograd.grad(self.o, self.inputs, dout.unsqueeze(0).transpose(1, 2), retain_graph=True)
        return tuple(g[0].transpose(0, 1) for g in gradients)


class Adapter(Peer):
    takes_head_dim_v = True

    def versions(self):
        return {"torch": torch.__version__}

    def plan(self, problem, masks, device):
        need_dtype(problem, "bf16", "f16", "f32")
        mask = one_mask(masks)
        need_seen_rows(mask)
        if mask.is_full() or mask.is_causal():
            return MathPlan(problem, mask.is_causal(), None)
        return MathPlan(problem, False, mask.dense(device))
