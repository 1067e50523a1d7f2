"""Context parallelism for models that call torch.nn.functional.scaled_dot_product_attention, in the manner of PyTorch's
torch.distributed.tensor.experimental.context_parallel, for any mask and length.

    cp = ContextParallel(mesh["cp"])
    with context_parallel(cp.place(mask, heads, head_dim), buffers=[x, y, positions], buffer_seq_dims=[1, 1, 0]):
        loss = model(x, positions, y)
        loss.backward()
"""

import contextlib

import torch

from longspan._mask import Mask

_functional = torch.nn.functional


@contextlib.contextmanager
def context_parallel(place, *, buffers=(), buffer_seq_dims=(), no_restore_buffers=()):
    """Within it, scaled_dot_product_attention runs over the ranks of the placement, and each buffer holds the tokens of this
    rank alone.

    place: a Placement. Its mask is the attention's. is_causal=True is accepted if that mask is causal; attn_mask and dropout are
    refused.
    buffers: tensors with all tokens, changed in place: inputs, labels, positions, rotary tables. Each has memory of its
    own, is contiguous and needs no gradient: of a view give a clone().
    buffer_seq_dims: the dimension of the tokens in each.
    no_restore_buffers: those that need not be whole again afterwards.

    Yields the placement. A batch of several sequences has the same mask for each. Raises ValueError for wrong arguments,
    NotImplementedError for what Longspan lacks."""
    buffers, no_restore_buffers = list(buffers), list(no_restore_buffers)
    if len(buffers) != len(buffer_seq_dims):
        raise ValueError(f"{len(buffers)} buffers and {len(buffer_seq_dims)} buffer_seq_dims: there must be as many of each")
    if not all(any(b is buffer for buffer in buffers) for b in no_restore_buffers):
        raise ValueError("no_restore_buffers: each must be one of the buffers")
    for i, buffer in enumerate(buffers):
        _check(buffer, f"buffers[{i}]")
    parts = [place.shard(buffer, dim) for buffer, dim in zip(buffers, buffer_seq_dims)]
    whole = [None if any(b is buffer for b in no_restore_buffers) else buffer.clone() for buffer in buffers]
    parts = [part.clone() for part in parts]
    attention = _attention_of(place)
    before = _functional.scaled_dot_product_attention
    try:
        _put(buffers, parts)
        _functional.scaled_dot_product_attention = attention
        yield place
    finally:
        _functional.scaled_dot_product_attention = before
        _put(buffers, whole)


def _check(buffer, name):
    """Raises ValueError for what cannot get another size without damage to other tensors."""
    if buffer.requires_grad:
        raise ValueError(f"{name} requires a gradient, and buffers are changed in place: give a detached clone()")
    if not buffer.is_contiguous() or buffer.untyped_storage().nbytes() != buffer.nbytes:
        raise ValueError(f"{name} is a part of other memory, or not contiguous, and buffers change their size in place: give a "
                         "clone()")


def _put(buffers, values):
    with torch.no_grad():
        for buffer, value in zip(buffers, values):
            if value is not None:
                buffer.resize_(value.shape).copy_(value)


def _attention_of(place):
    tokens = place.mask.shape[0]
    is_causal_mask = (place.mask & Mask.causal(tokens)).area == place.mask.area

    def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
                                     enable_gqa=False):
        """[.., heads, T_r, head_dim]"""
        if attn_mask is not None:
            raise NotImplementedError("attn_mask: the mask of context_parallel() is that of its placement; make a longspan.Mask "
                                      "of it, such as Mask.from_dense()")
        if dropout_p:
            raise NotImplementedError(f"dropout_p={dropout_p}: longspan has no dropout")
        if is_causal and not is_causal_mask:
            raise ValueError("is_causal=True, and the mask of context_parallel()'s placement shows keys after their rows")
        if query.shape[-3] != key.shape[-3] and not enable_gqa:
            raise ValueError(f"{query.shape[-3]} heads of queries and {key.shape[-3]} of keys need enable_gqa=True")
        batches = [x.flatten(0, -4) if x.dim() > 3 else x[None] for x in (query, key, value)]
        outputs = [place.cp.attention(*(x.transpose(0, 1) for x in sequence), place, scale=scale).transpose(0, 1)
                   for sequence in zip(*batches)]
        return torch.stack(outputs).view(*query.shape[:-1], value.shape[-1])

    return scaled_dot_product_attention
