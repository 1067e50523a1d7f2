"""Context parallelism in torchtitan, for batches [B, L] (torchtitan 0.3) and packed ones [T] (its main branch of August 2026).

    from longspan.integrations import torchtitan as longspan_titan

    def apply_cp_to_forward(attention_modules, cp_mesh):      # in place of torchtitan's, where it parallelizes a model
        cp = ContextParallel(cp_mesh)
        longspan_titan.convert(attention_modules, cp)
        torchtitan.trainer.prepare_context_parallel_input = longspan_titan.prepare_input(cp, heads, head_dim)

    torchtitan.models.llama3.parallelize.apply_cp_to_forward = apply_cp_to_forward

The masks are those that torchtitan makes: VarlenMetadata, BlockMask, dictionaries of these, or none, which is causal. Each is taken
exactly.
"""

import torch

from longspan._mask import Mask


def prepare_input(cp, heads, head_dim, dtype=torch.bfloat16):
    """torchtitan.distributed.context_parallel.prepare_context_parallel_input, for a ContextParallel. heads: (query heads, KV
    heads) of this rank.

    Returns a function of the same arguments. It gives the inputs, labels and positions of this rank's tokens, and Placements in
    place of attention_masks. The sequences of a batch [B, L] are shared as one: what it gives is [1, T_r]. The balance of load is the
    strategy's: load_balancer_type and ptrr_mask_key do not matter."""

    def prepare_context_parallel_input(inputs, labels, extra_kwargs, cp_mesh=None, device=None, load_balancer_type=None,
                                       ptrr_mask_key=None):
        masks = extra_kwargs.get("attention_masks")
        sequences, tokens = labels.shape if labels.dim() == 2 else (1, labels.shape[0])
        named = dict(masks) if hasattr(masks, "items") else {"": masks}
        ours = {name: _mask_of(mask, sequences, tokens) for name, mask in named.items() if name == "" or mask is not None}
        first = next(iter(ours))
        balance = ours[first]
        if hasattr(named[first], "cu_seq_q"):  # modules are causal by default
            balance = balance & Mask.causal(sequences * tokens)
        place = cp.place(balance, heads, head_dim, dtype)

        def mine(x):
            return place.shard(x) if labels.dim() == 1 else place.shard(x.flatten(0, 1))[None]

        places = {name: None if name not in ours else place.with_mask(ours[name]) for name in named}
        extra_kwargs["positions"] = mine(extra_kwargs["positions"])
        extra_kwargs["attention_masks"] = places if "" not in places else places[""]
        return mine(inputs), mine(labels), extra_kwargs

    return prepare_context_parallel_input


def _mask_of(mask, sequences, tokens):
    """Of a batch of so many sequences of so many tokens each."""
    if mask is None:
        return Mask.causal(tokens) if sequences == 1 else Mask.batch([Mask.causal(tokens)] * sequences)
    if isinstance(mask, Mask):
        return mask
    if hasattr(mask, "cu_seq_q"):  # the window is the module's: forward_of
        host = getattr(mask, "cu_seq_q_host", None)
        return Mask.from_cu_seqlens(mask.cu_seq_q if host is None else host)
    return Mask.from_block_mask(mask)


def forward_of(cp, window=(-1, -1)):
    """The forward function of an inner_attention of torchtitan over the ranks of a ContextParallel: forward(q, k, v,
    attention_masks=a Placement). q is [T_r, heads, head_dim] or [1, T_r, heads, head_dim].

    window: (left, right), what a row sees of its sequence; -1 is no bound.

    The function gives o, or what its out_transform makes of o and of lse [.., T_r, heads]. It raises NotImplementedError for what
    would be another attention: score_mod, is_causal=False, dropout."""

    def forward(q, k, v, *, attention_masks, scale=None, out_transform=None, score_mod=None, is_causal=True, dropout_p=0.0, **_):
        for name, given in (("score_mod", score_mod is not None), ("is_causal=False", not is_causal), ("dropout_p", dropout_p)):
            if given:
                raise NotImplementedError(f"{name}: longspan computes the attention of the placement's mask, without it")
        place = attention_masks.with_window(*window)
        if out_transform is None:
            return cp.attention(q, k, v, place, scale=scale)
        o, lse = cp.attention(q, k, v, place, scale=scale, return_lse=True)
        return out_transform(o, lse.transpose(0, 1).view(q.shape[:-1]))

    forward.longspan = cp
    return forward


def convert(modules, cp):
    """Gives attention modules the forward function of forward_of(), with the window of a VarlenAttention. They stay where they are,
    so Module.parallelize(), called afterwards, wraps it for tensor parallelism.

    modules: a model, whose modules named `inner_attention` are converted, or a sequence of such modules.

    Returns the number of modules that were not converted before."""
    if isinstance(modules, torch.nn.Module):
        modules = [getattr(module, "inner_attention", None) for module in modules.modules()]
    count = 0
    for module in modules:
        if isinstance(module, torch.nn.Module) and getattr(module.forward, "longspan", None) is not cp:
            module.forward = forward_of(cp, getattr(module, "window_size", (-1, -1)))
            count += 1
    return count
