"""fa3: FlashAttention-3, by its own package or by a package that carries its forward pass alone."""

import functools
import importlib.metadata

try:
    import flash_attn_interface as interface
    from flash_attn_config import CONFIG
except ModuleNotFoundError:
    import fa3_fwd_interface as interface
    from fa3_fwd_config import CONFIG

from support import flash_family
from support.adapter import Unsupported


class Adapter:
    def versions(self):
        packages = importlib.metadata.packages_distributions().get(interface.__name__, [])
        return {name: importlib.metadata.version(name) for name in packages}

    def plan(self, problem, masks, device):
        if problem.backward and CONFIG["build_flags"]["FLASHATTENTION_DISABLE_BACKWARD"]:
            raise Unsupported("this package was built without the backward pass")
        bind = functools.partial
        options = {"deterministic": problem.deterministic, "return_attn_probs": True}
        return flash_family.plan(
            problem, masks, bind(interface.flash_attn_func, **options), bind(interface.flash_attn_varlen_func, **options),
            device)
