"""Exact attention over any mask: the fastest kernels, their plans, and PyTorch operators.

    import longspan
    mask = longspan.Mask.documents([3000, 1200, 3992], inner="causal")
    o = longspan.attention(q, k, v, mask)     # q [8192, heads, head_dim]
"""

from longspan import _core, bench
from longspan._mask import Mask

__version__ = _core.version()
__all__ = ["Mask", "Plan", "attention", "attention_varlen", "bench", "plan"]


def __getattr__(name):
    """PyTorch is imported when something of it is first used."""
    if name in ("Plan", "attention", "attention_varlen", "plan"):
        import importlib
        module = importlib.import_module("longspan._attention")
        for each in ("Plan", "attention", "attention_varlen", "plan"):
            globals()[each] = getattr(module, each)
        return globals()[name]
    raise AttributeError(f"module 'longspan' has no attribute {name!r}")
