"""What the tests of the Python package share: the reference in plain PyTorch, and the devices to test."""

import pytest
import torch

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
GRADIENT_TOLERANCE = 1.25 * 2 ** -8  # in bf16: docs/concepts/proof.md


def pytest_configure(config):
    config.addinivalue_line("markers", "gpu: needs a CUDA GPU and a build with CUDA")


def pytest_collection_modifyitems(items):
    import longspan._core
    reason = None if torch.cuda.is_available() else "PyTorch finds no GPU"
    if reason is None and not longspan._core.has_cuda():
        reason = "this build of longspan has no CUDA kernels"
    for item in items:
        if reason and item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason=reason))


def reference(q, k, v, visible, scale=None, dtype=torch.float64, softcap=None, alibi_slopes=None):
    """(o, lse) by the definition, in `dtype`. visible: bool [rows, columns], or [KV heads, rows, columns]."""
    group = q.shape[1] // k.shape[1]
    q, k, v = (x.to(dtype) for x in (q, k, v))
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    visible = visible.to(q.device)
    if visible.dim() == 3:
        visible = visible.repeat_interleave(group, 0)
    scores = torch.einsum("qhd,khd->hqk", q, k) * (q.shape[2] ** -0.5 if scale is None else scale)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if alibi_slopes is not None:
        rows, columns = visible.shape[-2:]
        distance = (torch.arange(rows)[:, None] + columns - rows - torch.arange(columns)).abs().to(q)
        scores = scores - torch.as_tensor(alibi_slopes).to(q)[:, None, None] * distance
    scores = scores.masked_fill(~visible, float("-inf"))
    seen = visible.any(-1).expand(scores.shape[:2])
    safe = scores.masked_fill(~seen[..., None], 0)
    lse = torch.logsumexp(safe, -1)
    p = torch.exp(safe - lse[..., None]) * seen[..., None]
    return torch.einsum("hqk,khd->qhd", p.to(dtype), v), lse.masked_fill(~seen, float("-inf"))


def inputs(rows, columns, heads=(4, 2), head_dim=64, dtype=torch.float32, device="cpu", seed=0, head_dim_v=None):
    generator = torch.Generator().manual_seed(seed)
    shapes = (rows, heads[0], head_dim), (columns, heads[1], head_dim), (columns, heads[1], head_dim_v or head_dim)
    return [torch.randn(*shape, generator=generator).to(device, dtype).requires_grad_() for shape in shapes]


def gradients(o, lse, parts, seed=1):
    """Of a loss that depends on o and, where rows see keys, on lse."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(o.shape, generator=generator).to(o.device)
    weight_lse = torch.randn(lse.shape, generator=generator).to(o.device)
    loss = (o * weight).sum() + (lse.masked_fill(lse == float("-inf"), 0) * weight_lse).sum()
    return torch.autograd.grad(loss, parts)


def largest(a, b):
    difference = (a.double() - b).abs()
    return float(difference[torch.isfinite(b)].max()) if difference.numel() else 0.0


def assert_alike(got, expected, what, names=("o", "dq", "dk", "dv"), most=3e-3):
    """Equal but for roundings to bf16, each some 1.6e-3 of a tensor's norm: of results, and of probabilities in between. Gradients may have more."""
    for name, a, b in zip(names, got, expected, strict=True):
        difference = (a.double() - b.double()).norm() / b.double().norm()
        allowed = min(most, 3e-3) if name == "o" else most
        assert difference < allowed, f"{what}, {name}: differs by {difference:.1e} of its norm, at most by {largest(a, b):.1e}"
