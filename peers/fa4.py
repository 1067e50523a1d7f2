"""fa4: FlashAttention-4 (flash_attn.cute), which compiles for the GPU that it finds."""

import functools
import importlib.metadata
import os

os.environ.setdefault("FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED", "1")  # compiled once a machine, not once a worker

from flash_attn.cute import interface

from support import flash_family
from support.adapter import Peer


class Adapter(Peer):
    heeds_deterministic = True

    def versions(self):
        return {name: importlib.metadata.version(name) for name in ("flash-attn-4", "nvidia-cutlass-dsl")}

    def plan(self, problem, masks, device):
        bind = functools.partial
        options = {"deterministic": problem.deterministic, "return_lse": True}
        return flash_family.plan(
            problem, masks, bind(interface.flash_attn_func, **options), bind(interface.flash_attn_varlen_func, **options),
            device, unbounded=None)
