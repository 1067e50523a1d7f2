"""Longspan under torch.nn.functional.scaled_dot_product_attention.

    from longspan.integrations import torch_flash
    torch_flash.register()
    torch.nn.attention.activate_flash_attention_impl("LONGSPAN")

From then on Longspan's kernels take PyTorch's place wherever it chooses FlashAttention, in torch's own operators for
dense and packed sequences. What Longspan lacks (dropout, ALiBi slopes, an attn_mask on the CPU, float64, a scale that is not
positive, an empty batch) is refused with the reason, never computed otherwise; torch.nn.attention.restore_flash_attention_impl() gives PyTorch's own kernels back.
"""

import functools

import torch

from longspan import _ops
from longspan._attention import mask_of_lengths, plan_of
from longspan._mask import Mask
from longspan.flash import batch_mask

NAME = "LONGSPAN"


def register():
    """Makes the name known to torch.nn.attention.activate_flash_attention_impl."""
    registry = getattr(torch.nn.attention, "register_flash_attention_impl", None)
    if registry is None:
        raise NotImplementedError(f"PyTorch {torch.__version__} cannot be given other kernels for FlashAttention: it needs "
                                  "version 2.11")
    registry(NAME, register_fn=_Activated)


class _Activated:
    """The operators of PyTorch that Longspan replaces, while this object lives."""

    def __init__(self):
        self._library = torch.library.Library("aten", "IMPL")
        for device in ("CUDA", "CPU"):
            for name, function in _REPLACED[device].items():
                self._library.impl(name, function, device)

    def remove(self):
        self._library = None


def _refuse(**settings):
    for name, (value, off) in settings.items():
        if value is not None and value != off:
            raise NotImplementedError(f"{name}={value!r}: longspan has only {name}={off!r}; "
                                      "torch.nn.attention.restore_flash_attention_impl() gives PyTorch's kernels back")


@functools.lru_cache(maxsize=64)
def _dense_mask(batch, rows, columns, causal):
    """PyTorch's is_causal aligns the first row and the first key of each sequence."""
    one = Mask.from_bands([(0, rows, 0, columns, Mask.UNBOUNDED_BELOW, 0 if causal else Mask.UNBOUNDED_ABOVE)], rows,
                          columns)
    return one if batch == 1 else Mask.batch([one] * batch)


def _packed(*tensors):
    """[B * S, H, D] of each [B, S, H, D] or [T, H, D]."""
    return (_ops.tokens(x, "a tensor") for x in tensors)


def _by_tokens(*tensors):
    """[B * S, H, D] of each [B, H, S, D]."""
    return _packed(*(x.transpose(1, 2) for x in tensors))


def _heads(x, batch):
    """[B, H, S, D] of [B * S, H, D], without a copy."""
    return x.unflatten(0, (batch, -1)).transpose(1, 2)


def _laid_out_like(like, x):
    """x in the layout that PyTorch's compiler expects of a tensor like `like`."""
    out = torch.empty_like(like)
    return x if x.stride() == out.stride() else out.copy_(x)


def _forward(q, k, v, mask, scale):
    plan = plan_of(mask, q, k, v, scale, torch.are_deterministic_algorithms_enabled(), torch.is_grad_enabled())
    return _ops.forward(q, k, v, plan.tensor)


def _backward(grad, q, k, v, o, lse, mask, scale):
    plan = plan_of(mask, q, k, v, scale, torch.are_deterministic_algorithms_enabled(), True)
    return _ops.backward(grad.contiguous(), None, q, k, v, o, lse.contiguous(), plan.tensor)


# ---- scaled_dot_product_attention: q [B, H, S, D], lse [B, H, S] ----

def _sdpa(query, key, value, dropout_p=0.0, is_causal=False, attn_mask=None, scale=None):
    _refuse(dropout_p=(dropout_p, 0.0), attn_mask=(None if attn_mask is None else "a tensor", None))
    batch, heads, rows, _ = query.shape
    mask = _dense_mask(batch, rows, key.shape[2], is_causal)
    o, lse = _forward(*_by_tokens(query, key, value), mask, scale)
    lse = lse.view(heads, batch, rows)
    lse = lse.transpose(0, 1).contiguous() if query.is_cuda else lse.permute(1, 2, 0).contiguous().mT
    return _laid_out_like(query, _heads(o, batch)), lse


def _sdpa_backward(grad_out, query, key, value, out, logsumexp, is_causal, scale):
    batch, heads, rows, _ = query.shape
    mask = _dense_mask(batch, rows, key.shape[2], is_causal)
    gradients = _backward(*_by_tokens(grad_out, query, key, value, out),
                          logsumexp.transpose(0, 1).reshape(heads, batch * rows), mask, scale)
    gradients = tuple(_heads(x, batch) for x in gradients)
    return tuple(map(_laid_out_like, (query, key, value), gradients)) if query.is_cuda else gradients


def _unused(like):
    """Outputs of PyTorch's operators that only dropout needs."""
    return (torch.empty(2, dtype=torch.uint64, device=like.device), torch.empty((), dtype=torch.uint64, device=like.device),
            torch.empty(0, dtype=like.dtype, device=like.device))


def _sdpa_cuda(query, key, value, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    _refuse(return_debug_mask=(return_debug_mask, False))
    o, lse = _sdpa(query, key, value, dropout_p, is_causal, scale=scale)
    return o, lse, None, None, query.shape[2], key.shape[2], *_unused(query)


def _sdpa_cuda_backward(grad_out, query, key, value, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p,
                        is_causal, philox_seed, philox_offset, *, scale=None):
    return _sdpa_backward(grad_out, query, key, value, out, logsumexp, is_causal, scale)


def _sdpa_cpu(query, key, value, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    return _sdpa(query, key, value, dropout_p, is_causal, attn_mask, scale)


def _sdpa_cpu_backward(grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, *, attn_mask=None, scale=None):
    return _sdpa_backward(grad_out, query, key, value, out, logsumexp, is_causal, scale)


# ---- _flash_attention_forward, as torch.nn.attention.varlen calls it: q [B, S, H, D], or [T, H, D] with lengths ----

def _flash_mask(query, key, cum_seq_q, cum_seq_k, is_causal, left, right):
    """FlashAttention aligns the last row and the last key of each sequence."""
    window = (-1 if left is None else left, -1 if right is None else right)
    if cum_seq_q is not None:
        return mask_of_lengths(cum_seq_q, cum_seq_k, is_causal, window)
    return batch_mask(query.shape[0], query.shape[1], key.shape[1], is_causal, window)


def _flash(query, key, value, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, return_debug_mask, *, scale=None,
           window_size_left=None, window_size_right=None, seqused_k=None, alibi_slopes=None):
    _refuse(dropout_p=(dropout_p, 0.0), return_debug_mask=(return_debug_mask, False),
            seqused_k=(None if seqused_k is None else "a tensor", None),
            alibi_slopes=(None if alibi_slopes is None else "a tensor", None))
    mask = _flash_mask(query, key, cum_seq_q, cum_seq_k, is_causal, window_size_left, window_size_right)
    o, lse = _forward(*_packed(query, key, value), mask, scale)
    if query.dim() == 4:
        batch, rows, heads, _ = query.shape
        o, lse = o.view(query.shape), lse.view(heads, batch, rows).transpose(0, 1).contiguous()
    return o, lse, *_unused(query)


def _flash_backward(grad_out, query, key, value, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal,
                    rng_state, unused, *, scale=None, window_size_left=None, window_size_right=None):
    mask = _flash_mask(query, key, cum_seq_q, cum_seq_k, is_causal, window_size_left, window_size_right)
    if query.dim() == 4:
        batch, rows, heads, _ = query.shape
        logsumexp = logsumexp.transpose(0, 1).reshape(heads, batch * rows)
    gradients = _backward(*_packed(grad_out, query, key, value, out), logsumexp, mask, scale)
    return tuple(gradient.view(x.shape) for gradient, x in zip(gradients, (query, key, value)))


_REPLACED = {
    "CUDA": {
        "_scaled_dot_product_flash_attention": _sdpa_cuda,
        "_scaled_dot_product_flash_attention_backward": _sdpa_cuda_backward,
        "_flash_attention_forward": _flash,
        "_flash_attention_backward": _flash_backward,
    },
    "CPU": {
        "_scaled_dot_product_flash_attention_for_cpu": _sdpa_cpu,
        "_scaled_dot_product_flash_attention_for_cpu_backward": _sdpa_cpu_backward,
    },
}
