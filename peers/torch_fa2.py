"""torch-fa2: FlashAttention-2 as included in PyTorch, with its variable-length and window interfaces."""

PEER = {
    "description": "FlashAttention-2 in PyTorch",
    "framework": "torch",
    "package": "torch",
    "device": "cuda",
    "passes": ["forward", "backward"],
    "masks": "full, causal, windows, documents",
    "colour": "#9b4f96",
}

import torch

from support.adapter import Peer, Plan, Unsupported, need_dtype, one_mask


class Fa2Plan(Plan):
    def __init__(self, problem, causal, left, right, boundaries):
        self.scale, self.causal = problem.scale, causal
        self.window = dict(window_size_left=left, window_size_right=right)
        self.boundaries = boundaries
        if boundaries is None:
            self.longest = problem.tokens_q
        else:
            self.longest = int((boundaries[1:] - boundaries[:-1]).max())

    def _batched(self, tensor):  # the dense interface has a batch axis, the variable-length one does not
        return tensor if self.boundaries is not None else tensor.unsqueeze(0)

    def forward(self, q, k, v):
        self.saved = (self._batched(q), self._batched(k), self._batched(v))
        self.o, self._lse, self.state, self.unused, _ = torch.ops.aten._flash_attention_forward(
            *self.saved, self.boundaries, self.boundaries, self.longest, self.longest, 0.0, self.causal, False,
            scale=self.scale, **self.window)
        return self.o if self.boundaries is not None else self.o[0]

    def lse(self):
        return self._lse if self.boundaries is not None else self._lse[0]

    def backward(self, dout):
        gradients = torch.ops.aten._flash_attention_backward(
            self._batched(dout), *self.saved, self.o, self._lse, self.boundaries, self.boundaries, self.longest,
            self.longest, 0.0, self.causal, self.state, self.unused, scale=self.scale, **self.window)
        return gradients if self.boundaries is not None else tuple(g[0] for g in gradients)


class Adapter(Peer):
    heeds_deterministic = True

    def versions(self):
        return {"torch": torch.__version__}

    def plan(self, problem, masks, device):
        need_dtype(problem, "bf16", "f16")
        if problem.deterministic and problem.backward:
            raise Unsupported("its backward pass is not deterministic through this interface")
        mask = one_mask(masks)
        documents = mask.documents()
        if mask.is_full() or mask.is_causal():
            return Fa2Plan(problem, mask.is_causal(), None, None, None)
        if window := mask.window():
            return Fa2Plan(problem, False, *window, None)
        if documents:
            boundaries = torch.tensor(documents[0], dtype=torch.int32, device=device)
            return Fa2Plan(problem, documents[1], None, None, boundaries)
        raise Unsupported("cannot express this mask; it supports full, causal, windows and documents")
