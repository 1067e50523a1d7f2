"""flashmask: FlashMask as PaddlePaddle's own operator."""

PEER = {
    "description": "FlashMask in PaddlePaddle",
    "framework": "paddle",
    "package": "paddlepaddle-gpu",
    "device": "cuda",
    "passes": ["forward", "backward"],
    "masks": "all dense patterns; blocks of 128 x 128",
    "colour": "#8a1c4a",
}

import paddle
from paddle.nn.functional.flash_attention import flashmask_attention

from support import flashmask as forms
from support.adapter import Peer, Plan, Unsupported, need_dtype


class FlashMaskPlan(Plan):
    def __init__(self, problem, form):
        self.problem, self.causal, self.settings = problem, form.causal, form.settings()
        self.bounds = paddle.to_tensor(form.bounds)
        self.blocks = None if form.blocks is None else paddle.to_tensor(form.blocks)

    def forward(self, q, k, v):
        self.inputs = []
        for x in (q, k, v):
            x = x.detach().unsqueeze(0)
            x.stop_gradient = not self.problem.backward
            self.inputs.append(x)
        self.o, self._lse = flashmask_attention(
            *self.inputs, startend_row_indices=self.bounds, causal=self.causal, softmax_scale=self.problem.scale,
            return_softmax_lse=True, block_mask=self.blocks)
        return self.o.detach().squeeze(0)

    def lse(self):  # [1, heads, tokens, perhaps rounded up]
        return self._lse.detach().squeeze(0)[:, : self.problem.tokens_q]

    def backward(self, dout):
        gradients = paddle.grad([self.o], self.inputs, grad_outputs=[dout.unsqueeze(0)], retain_graph=True)
        return tuple(g.squeeze(0) for g in gradients)


class Adapter(Peer):
    heeds_deterministic = True

    def versions(self):
        return {"paddlepaddle-gpu": paddle.__version__}

    def plan(self, problem, masks, device):
        need_dtype(problem, "bf16", "f16")
        if problem.deterministic and problem.backward:
            raise Unsupported("its backward pass is not deterministic")
        return FlashMaskPlan(problem, forms.form_of(problem, masks))
