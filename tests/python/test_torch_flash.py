"""Longspan in the place of PyTorch's FlashAttention, by PyTorch's own registry."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

from conftest import DEVICES, GRADIENT_TOLERANCE, assert_alike, reference
from longspan.integrations import torch_flash

attention = torch.nn.attention
pytestmark = pytest.mark.skipif(not hasattr(attention, "register_flash_attention_impl"),
                                reason=f"PyTorch {torch.__version__} has no registry of FlashAttention's implementations")


@pytest.fixture
def activated():
    torch_flash.register()
    attention.activate_flash_attention_impl(torch_flash.NAME)
    with attention.sdpa_kernel(attention.SDPBackend.FLASH_ATTENTION):
        yield
    attention.restore_flash_attention_impl()


def tensors(device, batch=2, rows=96, heads=(4, 4), head_dim=64):
    """q, k, v [batch, heads, rows, head_dim], as views of [batch, rows, heads, head_dim]."""
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(batch, rows, h, head_dim, generator=generator).to(device, dtype).transpose(1, 2).requires_grad_()
            for h in (heads[0], heads[1], heads[1])]


def calls(monkeypatch):
    """Counts the calls of Longspan's operators."""
    from longspan import _ops
    made = []
    for name in ("forward", "backward"):
        function = getattr(_ops, name)
        monkeypatch.setattr(_ops, name, lambda *a, _function=function, _name=name: made.append(_name) or _function(*a))
    return made


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("causal", [False, True])
def test_sdpa(activated, monkeypatch, device, causal):
    made = calls(monkeypatch)
    q, k, v = tensors(device)
    o = sdpa(q, k, v, is_causal=causal, scale=0.2)
    dout = torch.randn_like(o)
    ours = torch.autograd.grad(o, (q, k, v), dout)
    assert made == ["forward", "backward"]
    rows = q.shape[2]
    seen = torch.ones(rows, rows, dtype=torch.bool).tril() if causal else torch.ones(rows, rows, dtype=torch.bool)
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    expected = torch.stack([reference(*(x[b].transpose(0, 1) for x in wide), seen, 0.2)[0].transpose(0, 1)
                            for b in range(q.shape[0])])
    assert_alike((o, *ours), (expected, *torch.autograd.grad(expected, wide, dout.double())), f"causal = {causal}",
                 most=1e-6 if device == "cpu" else GRADIENT_TOLERANCE)


@pytest.mark.gpu
def test_varlen(activated, monkeypatch):
    from torch.nn.attention.varlen import varlen_attn
    made = calls(monkeypatch)
    lengths = torch.tensor([0, 40, 96, 192], dtype=torch.int32, device="cuda")
    q, k, v = (x.transpose(1, 2).reshape(192, 4, 64).detach().requires_grad_() for x in tensors("cuda"))
    o = varlen_attn(q, k, v, lengths, lengths, 96, 96, window_size=(-1, 0))
    gradients = torch.autograd.grad(o, (q, k, v), torch.ones_like(o))
    assert made == ["forward", "backward"]
    from longspan import Mask
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    expected = reference(*wide, Mask.documents([40, 56, 96]).to_dense())[0]
    assert_alike((o, *gradients), (expected, *torch.autograd.grad(expected, wide, torch.ones_like(expected))), "documents",
                 most=GRADIENT_TOLERANCE)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dense", [False, True])
def test_a_model_compiles(activated, device, dense):
    q, k, v = (x.detach().contiguous().requires_grad_() if dense else x for x in tensors(device))
    compiled = torch.compile(lambda q, k, v: sdpa(q, k, v, is_causal=True).sin().sum(), fullgraph=True)
    ours = torch.autograd.grad(compiled(q, k, v), (q, k, v))
    for a, b in zip(ours, torch.autograd.grad(sdpa(q, k, v, is_causal=True).sin().sum(), (q, k, v))):
        torch.testing.assert_close(a, b)


def test_what_is_lacking_is_refused(activated):
    q, k, v = tensors("cpu")
    with pytest.raises(NotImplementedError, match="attn_mask"):
        sdpa(q, k, v, attn_mask=torch.zeros(96, 96))


def test_pytorch_gets_its_kernels_back(monkeypatch):
    made = calls(monkeypatch)
    torch_flash.register()
    q, k, v = tensors("cpu")
    attention.activate_flash_attention_impl(torch_flash.NAME)
    sdpa(q, k, v)
    assert made == ["forward"]
    attention.restore_flash_attention_impl()
    sdpa(q, k, v)
    assert made == ["forward"]
