"""fa3: FlashAttention-3, from its own package or from a package with its forward pass only."""

PEER = {
    "description": "FlashAttention-3 (flash_attn_interface)",
    "framework": "torch",
    "package": "flash_attn_3",
    "device": "cuda",
    "passes": ["forward", "backward"],
    "masks": "full, causal, windows, documents",
    "colour": "#4b3fa8",
}

import functools
import importlib.metadata

try:
    import flash_attn_interface as interface
    from flash_attn_config import CONFIG
except ModuleNotFoundError:
    import fa3_fwd_interface as interface
    from fa3_fwd_config import CONFIG

from support import flash_family
from support.adapter import Peer, Unsupported, one_mask

FLAGS = CONFIG["build_flags"]


def has(feature):
    return not FLAGS.get(f"FLASHATTENTION_DISABLE_{feature}", False)


class Adapter(Peer):
    heeds_deterministic = True

    def versions(self):
        packages = importlib.metadata.packages_distributions().get(interface.__name__, [])
        return {name: importlib.metadata.version(name) for name in packages}

    def plan(self, problem, masks, device):
        if problem.backward and not has("BACKWARD"):
            raise Unsupported("this package was built without the backward pass")
        mask = one_mask(masks)
        if mask.window() and not (mask.is_full() or mask.is_causal()) and not has("LOCAL"):
            raise Unsupported("this package was built without windows")
        if problem.dtype == "f16" and not has("FP16"):
            raise Unsupported("this package was built without f16")
        bind = functools.partial
        options = {"deterministic": problem.deterministic, "return_attn_probs": True}
        return flash_family.plan(
            problem, masks, bind(interface.flash_attn_func, **options), bind(interface.flash_attn_varlen_func, **options),
            device)
