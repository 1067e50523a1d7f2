"""The error of lse of each of FlashInfer's backends, on one causal problem against fp64, and the error that results from rounding weights
to bf16 before adding them. It is why the peer flash-infer gets no masks with one bit per pair (docs/guide/peers.md).

    python tools/probes/flash_infer_lse.py
"""

import math

import flashinfer
import torch

TOKENS, HEADS, DIM = 2048, 4, 128
torch.manual_seed(1)
q, k, v = (torch.randn(TOKENS, HEADS, DIM, device="cuda", dtype=torch.bfloat16) for _ in range(3))
visible = torch.ones(TOKENS, TOKENS, device="cuda", dtype=torch.bool).tril()
scores = torch.einsum("qhd,khd->hqk", q.double(), k.double()) * DIM**-0.5
scores.masked_fill_(~visible, -math.inf)
true = torch.logsumexp(scores, -1)
true_o = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v.double())
largest = scores.amax(-1, keepdim=True)
rounded = largest.squeeze(-1) + (scores - largest).exp().bfloat16().double().sum(-1).log() - true
print("rounded weights alone: worst", rounded.abs().max().item(), "rms", rounded.pow(2).mean().sqrt().item())

bits = flashinfer.quantization.packbits(visible.view(-1), bitorder="little")
for name, options in {
        "fa2 causal": {"backend": "fa2", "causal": True}, "bits": {"packed_custom_mask": bits},
        "fa3 causal": {"backend": "fa3", "causal": True}}.items():
    o, lse = flashinfer.single_prefill_with_kv_cache(q, k, v, return_lse=True, **options)
    error = lse.double().T * math.log(2) - true
    both = torch.stack([error.flatten(), rounded.flatten()])
    print(
        name, "lse worst", error.abs().max().item(), "rms", error.pow(2).mean().sqrt().item(), "o",
        ((o.double() - true_o).norm() / true_o.norm()).item(), "corr with rounded", torch.corrcoef(both)[0, 1].item())
