"""fa2: FlashAttention-2 by its own package, flash_attn."""

import functools

import flash_attn

from support import flash_family


class Adapter:
    def versions(self):
        return {"flash_attn": flash_attn.__version__}

    def plan(self, problem, masks, device):
        bind = functools.partial
        options = {"deterministic": problem.deterministic, "return_attn_probs": True}
        return flash_family.plan(
            problem, masks, bind(flash_attn.flash_attn_func, **options), bind(flash_attn.flash_attn_varlen_func, **options),
            device)
