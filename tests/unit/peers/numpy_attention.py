"""numpy-attention: attention by its definition in NumPy on the CPU. A peer for tests that defines no device of its own."""

PEER = {
    "description": "attention by its definition in NumPy",
    "framework": "numpy",
    "package": "numpy",
    "device": "cpu",
    "passes": ["forward", "backward"],
    "masks": "all without empty rows",
    "colour": "#d33682",
}

import numpy as np

from support.adapter import Peer, Plan, need_dtype, need_seen_rows, one_mask


class NumpyPlan(Plan):
    def __init__(self, problem, visible):
        self.problem, self.visible = problem, visible

    def forward(self, q, k, v):
        group = self.problem.group
        self.inputs = q, k, v = [np.asarray(x, np.float64).transpose(1, 0, 2) for x in (q, k, v)]
        score = q @ k.repeat(group, 0).transpose(0, 2, 1) * self.problem.scale
        score[:, ~self.visible] = -np.inf
        self.kept_lse = np.log(np.exp(score).sum(-1))
        self.weights = np.exp(score - self.kept_lse[..., None])
        self.o = self.weights @ v.repeat(group, 0)
        return self.o.transpose(1, 0, 2).astype(np.float32)

    def lse(self):
        return self.kept_lse.astype(np.float32)

    def backward(self, dout):
        group = self.problem.group
        q, k, v = self.inputs
        dout = np.asarray(dout, np.float64).transpose(1, 0, 2)
        dweights = dout @ v.repeat(group, 0).transpose(0, 2, 1)
        dscore = self.weights * (dweights - (dout * self.o).sum(-1, keepdims=True)) * self.problem.scale
        summed = lambda x: x.reshape(-1, group, *x.shape[1:]).sum(1)
        gradients = (
            dscore @ k.repeat(group, 0), summed(dscore.transpose(0, 2, 1) @ q), summed(self.weights.transpose(0, 2, 1) @ dout))
        return tuple(x.transpose(1, 0, 2).astype(np.float32) for x in gradients)


class Adapter(Peer):
    def plan(self, problem, masks, device):
        need_dtype(problem, "f32")
        mask = one_mask(masks)
        need_seen_rows(mask)
        begin, end = mask.row_intervals()
        column = np.arange(mask.columns)
        return NumpyPlan(problem, ((column >= begin[..., None]) & (column < end[..., None])).any(0))
