"""Context parallelism in torchtitan, for packed batches [T, heads, head_dim].

    from longspan.integrations import torchtitan as longspan_titan
    prepare_context_parallel_input = longspan_titan.prepare_input(cp, heads, head_dim)   # in place of torchtitan's
    longspan_titan.convert(model, cp)                                                    # its inner_attention modules

The masks are those that torchtitan makes: VarlenMetadata, BlockMask, dictionaries of these, or none, which is causal. Each is taken
exactly. The interface is that of torchtitan in August 2026.
"""

import torch

from longspan._mask import Mask


def prepare_input(cp, heads, head_dim, dtype=torch.bfloat16):
    """torchtitan.distributed.context_parallel.prepare_context_parallel_input, for a ContextParallel. heads: (query heads, KV
    heads) of this rank.

    Returns a function of the same arguments. It gives the inputs, labels and positions of this rank's tokens, and Placements in
    place of attention_masks. The balance of load is the strategy's: load_balancer_type and ptrr_mask_key do not matter."""

    def prepare_context_parallel_input(inputs, labels, extra_kwargs, cp_mesh=None, device=None, load_balancer_type=None,
                                       ptrr_mask_key=None):
        masks = extra_kwargs.get("attention_masks")
        tokens = inputs.shape[0]
        named = dict(masks) if hasattr(masks, "items") else {"": masks}
        ours = {name: _mask_of(mask, tokens) for name, mask in named.items() if name == "" or mask is not None}
        first = next(iter(ours))
        balance = ours[first]
        if hasattr(named[first], "cu_seq_q"):  # modules are causal by default
            balance = balance & Mask.causal(tokens)
        place = cp.place(balance, heads, head_dim, dtype)
        places = {name: None if name not in ours else place.with_mask(ours[name]) for name in named}
        extra_kwargs["positions"] = place.shard(extra_kwargs["positions"])
        extra_kwargs["attention_masks"] = places if "" not in places else places[""]
        return place.shard(inputs), place.shard(labels), extra_kwargs

    return prepare_context_parallel_input


def _mask_of(mask, tokens):
    if mask is None:
        return Mask.causal(tokens)
    if isinstance(mask, Mask):
        return mask
    if hasattr(mask, "cu_seq_q"):  # the window is the module's: CpAttention
        host = getattr(mask, "cu_seq_q_host", None)
        return Mask.from_cu_seqlens(mask.cu_seq_q if host is None else host)
    return Mask.from_block_mask(mask)


class CpAttention(torch.nn.Module):
    """An inner_attention of torchtitan over the ranks of a ContextParallel: forward(q, k, v, attention_masks=a Placement)."""

    def __init__(self, cp, window=(-1, -1)):
        """window: (left, right), what a row sees of its sequence; -1 is no bound."""
        super().__init__()
        self.cp, self.window = cp, tuple(window)

    def forward(self, q, k, v, *, attention_masks, scale=None, out_transform=None, **_):
        """q [T_r, heads, head_dim]; k, v [T_r, heads_kv, head_dim]. out_transform: a function of o and lse [T_r, heads]. Returns
        o, or what out_transform makes of it."""
        place = attention_masks.with_window(*self.window)
        if out_transform is None:
            return self.cp.attention(q, k, v, place, scale=scale)
        o, lse = self.cp.attention(q, k, v, place, scale=scale, return_lse=True)
        return out_transform(o, lse.transpose(0, 1))


def convert(model, cp):
    """Puts a CpAttention in place of each `inner_attention` of the model, with the window of a VarlenAttention. Returns their
    number."""
    count = 0
    for module in list(model.modules()):
        inner = getattr(module, "inner_attention", None)
        if isinstance(inner, torch.nn.Module) and not isinstance(inner, CpAttention):
            module.inner_attention = CpAttention(cp, getattr(inner, "window_size", (-1, -1)))
            count += 1
    return count
