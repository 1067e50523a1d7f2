"""flashmask-v3: FlashMask V3, from its own build for PyTorch (flashmask/flash_mask/flashmask_attention_v3/setup_torch.py)."""

PEER = {
    "description": "FlashMask V3 for PyTorch",
    "framework": "torch",
    "package": "flashmask",
    "device": "cuda",
    "passes": ["forward", "backward"],
    "masks": "all dense patterns; blocks of 128 x 128",
    "colour": "#c2649a",
}

import torch

import flashmask._C  # registers torch.ops.flashmask

from support import flashmask as forms
from support.adapter import Peer, Plan, Unsupported, need_dtype


class FlashMaskPlan(Plan):
    def __init__(self, problem, form, device):
        self.deterministic, self.settings = problem.deterministic, form.settings()
        self.options = {
            "startend_row_indices": torch.from_numpy(form.bounds).to(device), "is_causal": form.causal,
            "block_mask": None if form.blocks is None else torch.from_numpy(form.blocks).to(device),
            "softmax_scale": problem.scale}

    def forward(self, q, k, v):
        self.saved = [x.unsqueeze(0) for x in (q, k, v)]
        self.o, self._lse, *_ = torch.ops.flashmask.fwd(*self.saved, **self.options)
        return self.o[0]

    def lse(self):
        return self._lse[0]

    def backward(self, dout):
        gradients = torch.ops.flashmask.bwd(
            dout.unsqueeze(0), *self.saved, self.o, self._lse, deterministic=self.deterministic, **self.options)
        return tuple(x[0] for x in gradients)


class Adapter(Peer):
    heeds_deterministic = True

    def plan(self, problem, masks, device):
        need_dtype(problem, "bf16")
        if problem.deterministic and problem.backward and problem.head_dim > 128:
            raise Unsupported("its backward pass is deterministic only up to head_dim 128")
        return FlashMaskPlan(problem, forms.form_of(problem, masks), device)
