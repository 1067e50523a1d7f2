"""torch-cudnn: cuDNN's fused attention through PyTorch. Full and causal natively, any other mask as a dense bias."""

PEER = {
    "description": "cuDNN in PyTorch",
    "framework": "torch",
    "package": "torch",
    "device": "cuda",
    "passes": ["forward", "backward"],
    "masks": "full, causal; others as a dense bias",
    "colour": "#0a8a66",
}

import torch

from support.adapter import Peer, Plan, Unsupported, need_dtype, need_seen_rows, one_mask
from support.bias import dense_bias
from support.torch_device import DTYPES


def _bhtd(tensor):  # a view: cuDNN takes any strides
    return tensor.unsqueeze(0).transpose(1, 2)


class CudnnPlan(Plan):
    def __init__(self, problem, causal, bias):
        self.scale, self.causal, self.bias = problem.scale, causal, bias
        self.settings = "" if bias is None else "dense bias"

    def forward(self, q, k, v):
        self.saved = (_bhtd(q), _bhtd(k), _bhtd(v))
        self.result = torch.ops.aten._scaled_dot_product_cudnn_attention(
            *self.saved, self.bias, True, 0.0, self.causal, False, scale=self.scale)
        return self.result[0][0].transpose(0, 1)

    def lse(self):
        return self.result[1][0].squeeze(-1)

    def backward(self, dout):
        o, lse, cu_q, cu_k, max_q, max_k, seed, offset, _ = self.result
        gradients = torch.ops.aten._scaled_dot_product_cudnn_attention_backward(
            _bhtd(dout), *self.saved, o, lse, seed, offset, self.bias, cu_q, cu_k, max_q, max_k, 0.0, self.causal,
            scale=self.scale)
        return tuple(g[0].transpose(0, 1) for g in gradients[:3])


class Adapter(Peer):
    heeds_deterministic = True

    def versions(self):
        return {"torch": torch.__version__, "cudnn": str(torch.backends.cudnn.version())}

    def plan(self, problem, masks, device):
        need_dtype(problem, "bf16", "f16")
        if problem.deterministic and problem.backward:
            raise Unsupported("its backward pass is not deterministic through this interface")
        mask = one_mask(masks)
        need_seen_rows(mask)
        if mask.is_full() or mask.is_causal():
            return CudnnPlan(problem, mask.is_causal(), None)
        return CudnnPlan(problem, False, dense_bias(mask, DTYPES[problem.dtype], device))
