"""The interface shared by the generations of FlashAttention: a dense and a variable-length function, windows, autograd."""

import torch

from support.adapter import Plan, Unsupported, need_dtype, one_mask


def expresses(mask):
    return mask.is_full() or mask.is_causal() or mask.window() is not None or mask.documents() is not None


class FlashPlan(Plan):
    """`dense` and `varlen` are the package's functions with all arguments bound except tensors, mask and lengths. Each returns
    (o, lse, ...)."""

    def __init__(self, problem, mask, dense, varlen, device, unbounded=-1):
        self.problem, self.dense, self.varlen = problem, dense, varlen
        self.boundaries = None
        self.options = {"softmax_scale": problem.scale, "causal": False, "window_size": (unbounded, unbounded)}
        if mask.is_full():
            pass
        elif mask.is_causal():
            self.options["causal"] = True
        elif window := mask.window():
            self.options["window_size"] = tuple(unbounded if side < 0 else side for side in window)
        elif documents := mask.documents():
            self.boundaries = torch.tensor(documents[0], dtype=torch.int32, device=device)
            self.longest = int((self.boundaries[1:] - self.boundaries[:-1]).max())
            self.options["causal"] = documents[1]
        else:
            raise Unsupported("cannot express this mask; it supports full, causal, windows and documents")

    def forward(self, q, k, v):
        self.inputs = [x.detach().requires_grad_(self.problem.backward) for x in (q, k, v)]
        if self.boundaries is None:
            self.o, self._lse, *_ = self.dense(*(x.unsqueeze(0) for x in self.inputs), **self.options)
            return self.o.detach()[0]
        self.o, self._lse, *_ = self.varlen(
            *self.inputs, cu_seqlens_q=self.boundaries, cu_seqlens_k=self.boundaries, max_seqlen_q=self.longest,
            max_seqlen_k=self.longest, **self.options)
        return self.o.detach()

    def lse(self):
        return self._lse.detach() if self.boundaries is not None else self._lse.detach()[0]

    def backward(self, dout):
        dout = dout if self.boundaries is not None else dout.unsqueeze(0)
        return torch.autograd.grad(self.o, self.inputs, dout, retain_graph=True)


def plan(problem, masks, dense, varlen, device, unbounded=-1):
    need_dtype(problem, "bf16", "f16")
    return FlashPlan(problem, one_mask(masks), dense, varlen, device, unbounded)
