"""The functions with flash-attn's signatures, against the definition that its documentation gives."""

import pytest
import torch

from conftest import inputs, reference
from longspan import Mask, flash


def visible(rows, columns, causal, window):
    """flash-attn aligns the last row and the last key."""
    i, j = torch.arange(rows)[:, None] + columns - rows, torch.arange(columns)[None, :]
    left, right = window[0], 0 if causal else window[1]
    seen = torch.ones(rows, columns, dtype=torch.bool)
    if left >= 0:
        seen &= j >= i - left
    if right >= 0:
        seen &= j <= i + right
    return seen


@pytest.mark.parametrize("rows, columns", [(40, 40), (20, 50), (50, 20)])
@pytest.mark.parametrize("causal, window", [(False, (-1, -1)), (True, (-1, -1)), (False, (8, 3)), (True, (8, -1))])
def test_dense(rows, columns, causal, window):
    batch = 2
    q, k, v = (x.detach().reshape(batch, -1, x.shape[1], x.shape[2]).requires_grad_()
               for x in inputs(batch * rows, batch * columns))
    o, lse, _ = flash.flash_attn_func(q, k, v, causal=causal, window_size=window, softmax_scale=0.2,
                                      return_attn_probs=True)
    assert o.shape == q.shape and lse.shape == (batch, 4, rows)
    seen = visible(rows, columns, causal, window)
    expected = [reference(q[b], k[b], v[b], seen, 0.2) for b in range(batch)]
    torch.testing.assert_close(o.double(), torch.stack([e[0] for e in expected]), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(lse.double(), torch.stack([e[1] for e in expected]), atol=1e-5, rtol=1e-5)
    ours = torch.autograd.grad(o.sin().sum(), (q, k, v))
    theirs = torch.autograd.grad(sum(e[0].sin().sum() for e in expected), (q, k, v))
    for a, b in zip(ours, theirs):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


def test_packed():
    lengths_q = torch.tensor([0, 30, 50], dtype=torch.int32)
    lengths_k = torch.tensor([0, 45, 65], dtype=torch.int32)
    q, k, v = inputs(50, 65)
    o, lse, _ = flash.flash_attn_varlen_func(q, k, v, lengths_q, lengths_k, 30, 45, causal=True, return_attn_probs=True)
    expected = reference(q, k, v, Mask.from_cu_seqlens(lengths_q, lengths_k, causal=True).to_dense())
    torch.testing.assert_close(o.double(), expected[0], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(lse.double(), expected[1], atol=1e-5, rtol=1e-5)
    qkv = torch.randn(2, 30, 3, 4, 64)
    whole = flash.flash_attn_qkvpacked_func(qkv, causal=True)
    assert torch.equal(whole, flash.flash_attn_func(*qkv.unbind(2), causal=True))
    assert torch.equal(whole, flash.flash_attn_kvpacked_func(qkv[:, :, 0], qkv[:, :, 1:], causal=True))


SLOPES = torch.tensor([0.5, 0.25, 0.125, 0.0625])


@pytest.mark.parametrize("rows, columns, batch", [(40, 40, 2), (20, 50, 1), (50, 20, 1)])
@pytest.mark.parametrize("options", [{"softcap": 2.0}, {"alibi_slopes": SLOPES}, {"softcap": 5.0, "alibi_slopes": SLOPES}], ids=str)
def test_scores(rows, columns, batch, options):
    q, k, v = (x.detach().reshape(batch, -1, x.shape[1], x.shape[2]).requires_grad_()
               for x in inputs(batch * rows, batch * columns))
    seen = visible(rows, columns, True, (-1, -1))
    expected = torch.stack([reference(q[b], k[b], v[b], seen, **options)[0] for b in range(batch)])
    o = flash.flash_attn_func(q, k, v, causal=True, **options)
    torch.testing.assert_close(o.double(), expected, atol=1e-5, rtol=1e-5)
    theirs = torch.autograd.grad(expected.sin().sum(), (q, k, v))
    for a, b in zip(torch.autograd.grad(o.sin().sum(), (q, k, v)), theirs):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)
    lengths = torch.arange(batch + 1, dtype=torch.int32)
    packed = flash.flash_attn_varlen_func(*(x.flatten(0, 1) for x in (q, k, v)), lengths * rows, lengths * columns, causal=True,
                                          **options)
    torch.testing.assert_close(packed.view(o.shape), o, atol=1e-6, rtol=1e-6)


def test_slopes_of_a_batch_need_as_many_keys_as_rows():
    q, k = torch.randn(2, 10, 4, 64), torch.randn(2, 20, 4, 64)
    with pytest.raises(NotImplementedError, match="as many keys as rows"):
        flash.flash_attn_func(q, k, k, alibi_slopes=SLOPES)
    with pytest.raises(NotImplementedError, match="one slope per head"):
        flash.flash_attn_func(q, q, q, alibi_slopes=SLOPES.expand(2, 4))


@pytest.mark.parametrize("options", [{"dropout_p": 0.1}], ids=str)
def test_what_is_lacking_is_refused(options):
    q = torch.randn(1, 10, 2, 64)
    with pytest.raises(NotImplementedError, match=next(iter(options))):
        flash.flash_attn_func(q, q, q, **options)
    packed = torch.tensor([0, 10])
    with pytest.raises(NotImplementedError, match=next(iter(options))):
        flash.flash_attn_varlen_func(q[0], q[0], q[0], packed, packed, 10, 10, **options)


def test_shapes_are_checked():
    q = torch.randn(10, 2, 64)
    with pytest.raises(ValueError, match="batch"):
        flash.flash_attn_func(q, q, q)
