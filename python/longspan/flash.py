"""The functions of the package flash-attn, with its signatures, by Longspan's kernels.

    from longspan.flash import flash_attn_func, flash_attn_varlen_func

What Longspan lacks (dropout, paged keys, ALiBi slopes that differ by sequence) is refused, never ignored.
"""

import functools

from longspan._attention import attention, attention_varlen
from longspan._mask import Mask


def _refuse(**settings):
    for name, (value, off) in settings.items():
        if value is not None and value != off:
            raise NotImplementedError(f"{name}={value!r}: longspan has only {name}={off!r}")


@functools.lru_cache(maxsize=64)
def batch_mask(batch, rows, columns, causal, window):
    """The mask of a batch of sequences, one after another: the last row and the last key of each are aligned."""
    starts_q = [rows * i for i in range(batch + 1)]
    starts_k = [columns * i for i in range(batch + 1)]
    return Mask.from_cu_seqlens(starts_q, starts_k, causal=causal, window=window)


def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
                    alibi_slopes=None, deterministic=False, return_attn_probs=False):
    """Attention of a batch: q [batch, rows, heads, head_dim], k and v [batch, keys, heads_kv, head_dim], in bfloat16 or
    float16, on the CPU also float32. Where there are more keys than rows, the last of both are aligned.

    alibi_slopes: [heads]; in a batch, of as many keys as rows.

    Returns o, like q; with return_attn_probs (o, lse, None), lse float32 [batch, heads, rows]. Raises
    NotImplementedError for dropout_p, and what longspan.attention() raises.
    """
    _refuse(dropout_p=(dropout_p, 0.0))
    if q.dim() != 4 or k.dim() != 4:
        raise ValueError(f"q has shape {list(q.shape)}, k {list(k.shape)}: must be [batch, tokens, heads, head_dim]")
    batch, rows, heads = q.shape[:3]
    mask = batch_mask(batch, rows, k.shape[1], bool(causal), tuple(window_size))
    o, lse = attention(q, k, v, mask, scale=softmax_scale, softcap=softcap or None, alibi_slopes=alibi_slopes,
                       deterministic=deterministic or None, return_lse=True)
    return (o, lse.view(heads, batch, rows).transpose(0, 1), None) if return_attn_probs else o


def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q=None, max_seqlen_k=None, dropout_p=0.0,
                           softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None,
                           deterministic=False, return_attn_probs=False, block_table=None):
    """Attention of packed sequences: q [tokens, heads, head_dim], k and v [tokens, heads_kv, head_dim], in the dtypes of
    flash_attn_func.

    cu_seqlens_q, cu_seqlens_k: cumulative lengths, integer tensors [sequences + 1].
    max_seqlen_q, max_seqlen_k: the longest lengths; not needed.
    alibi_slopes: [heads]; of several sequences, with as many keys as rows in each.

    Returns o, like q; with return_attn_probs (o, lse, None), lse float32 [heads, tokens]. Raises NotImplementedError
    for dropout_p and block_table, and what longspan.attention_varlen() raises.
    """
    _refuse(dropout_p=(dropout_p, 0.0), block_table=(block_table, None))
    keys = None if cu_seqlens_k is cu_seqlens_q else cu_seqlens_k
    o, lse = attention_varlen(q, k, v, cu_seqlens_q, keys, causal=bool(causal), window=tuple(window_size),
                              scale=softmax_scale, softcap=softcap or None, alibi_slopes=alibi_slopes,
                              deterministic=deterministic or None, return_lse=True)
    return (o, lse, None) if return_attn_probs else o


def flash_attn_qkvpacked_func(qkv, *arguments, **options):
    """flash_attn_func of qkv [batch, tokens, 3, heads, head_dim], without a copy."""
    return flash_attn_func(*qkv.unbind(2), *arguments, **options)


def flash_attn_kvpacked_func(q, kv, *arguments, **options):
    """flash_attn_func of kv [batch, keys, 2, heads_kv, head_dim], without a copy."""
    return flash_attn_func(q, *kv.unbind(2), *arguments, **options)
