"""fa2: FlashAttention-2 from its own package, flash_attn."""

PEER = {
    "description": "FlashAttention-2 (flash_attn)",
    "framework": "torch",
    "package": "flash_attn",
    "device": "cuda",
    "passes": ["forward", "backward"],
    "masks": "full, causal, windows, documents",
    "colour": "#9b4f96",
}

import functools

from flash_attn import flash_attn_func, flash_attn_varlen_func

from support import flash_family
from support.adapter import Peer


class Adapter(Peer):
    heeds_deterministic = True

    def plan(self, problem, masks, device):
        bind = functools.partial
        options = {"deterministic": problem.deterministic, "return_attn_probs": True}
        return flash_family.plan(
            problem, masks, bind(flash_attn_func, **options), bind(flash_attn_varlen_func, **options),
            device)
