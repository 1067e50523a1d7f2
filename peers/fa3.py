"""fa3: FlashAttention-3, from its own package, from xformers (0.0.32 to 0.0.34), or from a package with its forward pass only."""

PEER = {
    "description": "FlashAttention-3",
    "framework": "torch",
    "package": "flash_attn_3",
    "device": "cuda",
    "passes": ["forward", "backward"],
    "masks": "full, causal, windows, documents",
    "colour": "#4b3fa8",
}

import functools
import importlib.metadata
import importlib.util
import pathlib

import torch

from support import flash_family
from support.adapter import Peer, Plan, Unsupported, need_dtype, one_mask


def _in_xformers():
    """The library of operators in xformers, which is not imported: it wants the version of PyTorch that it was built with, but its
    operators need less. None if it is not there."""
    found = importlib.util.find_spec("xformers")
    libraries = [path for folder in (found.submodule_search_locations if found else [])
                 for path in (pathlib.Path(folder) / "flash_attn_3").glob("_C*.so")]
    return libraries[0] if libraries else None


if importlib.util.find_spec("flash_attn_interface"):
    import flash_attn_interface as interface
    from flash_attn_config import CONFIG
    FLAGS, PACKAGE = CONFIG["build_flags"], None
elif library := _in_xformers():
    torch.ops.load_library(str(library))
    interface, FLAGS, PACKAGE = None, {}, "xformers"
else:
    import fa3_fwd_interface as interface
    from fa3_fwd_config import CONFIG
    FLAGS, PACKAGE = CONFIG["build_flags"], None


def has(feature):
    return not FLAGS.get(f"FLASHATTENTION_DISABLE_{feature}", False)


class OperatorPlan(Plan):
    """By the operators alone, as they are registered in xformers."""

    def __init__(self, problem, mask, device):
        need_dtype(problem, "bf16", "f16")
        how = flash_family.FlashPlan(problem, mask, None, None, device)
        self.deterministic, self.boundaries = problem.deterministic, how.boundaries
        left, right = how.options["window_size"]
        self.options = {"softmax_scale": problem.scale, "is_causal": how.options["causal"], "window_size_left": left,
                        "window_size_right": right}
        if self.boundaries is not None:
            self.options.update(cu_seqlens_q=self.boundaries, cu_seqlens_k=self.boundaries, max_seqlen_q=how.longest,
                                max_seqlen_k=how.longest)

    def _batched(self, x):
        return x if self.boundaries is not None else x.unsqueeze(0)

    def _single(self, x):
        return x if self.boundaries is not None else x[0]

    def forward(self, q, k, v):
        self.saved = [self._batched(x) for x in (q, k, v)]
        self.o, self._lse, *_ = torch.ops.flash_attn_3.fwd(*self.saved, **self.options)
        return self._single(self.o)

    def lse(self):
        return self._single(self._lse)

    def backward(self, dout):
        gradients = torch.ops.flash_attn_3.bwd(self._batched(dout), *self.saved, self.o, self._lse,
                                               deterministic=self.deterministic, **self.options)
        return tuple(self._single(x) for x in gradients[:3])


class Adapter(Peer):
    heeds_deterministic = True

    def versions(self):
        packages = [PACKAGE] if PACKAGE else importlib.metadata.packages_distributions().get(interface.__name__, [])
        return {name: importlib.metadata.version(name) for name in packages}

    def plan(self, problem, masks, device):
        if problem.backward and not has("BACKWARD"):
            raise Unsupported("this package was built without the backward pass")
        mask = one_mask(masks)
        if mask.window() and not (mask.is_full() or mask.is_causal()) and not has("LOCAL"):
            raise Unsupported("this package was built without windows")
        if problem.dtype == "f16" and not has("FP16"):
            raise Unsupported("this package was built without f16")
        if interface is None:
            return OperatorPlan(problem, mask, device)
        bind = functools.partial
        options = {"deterministic": problem.deterministic, "return_attn_probs": True}
        return flash_family.plan(
            problem, masks, bind(interface.flash_attn_func, **options), bind(interface.flash_attn_varlen_func, **options),
            device)
