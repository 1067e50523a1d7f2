"""Longspan in Hugging Face Transformers.

    from longspan.integrations import transformers as longspan_transformers
    longspan_transformers.register()
    model = AutoModelForCausalLM.from_pretrained(..., attn_implementation="longspan")

Every mask that Transformers asks for is taken exactly: causal, sliding windows, chunks, packed sequences by position_ids,
padding. It is found by evaluating the model's own mask function once for each forward pass of the model.
"""

import contextlib

import torch

from longspan._attention import attention
from longspan._mask import Mask

NAME = "longspan"
_sharded = None  # a _Sharded while the model runs over several ranks
_ROWS_AT_ONCE = 1024  # of the mask function, which gives a boolean for each pair


def register(name=NAME):
    """Adds the attention and its masks to Transformers, as attn_implementation=name. Raises ImportError if Transformers
    is absent or older than its AttentionMaskInterface."""
    from transformers import AttentionInterface, AttentionMaskInterface
    AttentionInterface.register(name, attention_forward)
    AttentionMaskInterface.register(name, make_mask)


def make_mask(batch_size, q_length, kv_length, q_offset=0, kv_offset=0, mask_function=None, attention_mask=None,
              device="cpu", **_):
    """The Mask of a batch: for AttentionMaskInterface, which gives it all arguments. mask_function: of indices of batch,
    head, row and key, causal by default. attention_mask: bool [batch, keys], False for padding."""
    from transformers.masking_utils import causal_mask_function, prepare_padding_mask
    mask_function = mask_function or causal_mask_function
    if _sharded is not None:
        return _sharded.place_of(mask_function, causal_mask_function, attention_mask, device)
    q_offset, kv_offset = int(q_offset), int(kv_offset)
    if mask_function is causal_mask_function and (attention_mask is None or bool(attention_mask.all())):
        one = Mask.from_bands([(0, q_length, 0, kv_length, Mask.UNBOUNDED_BELOW, q_offset - kv_offset)], q_length, kv_length)
        return one if batch_size == 1 else Mask.batch([one] * batch_size)
    padding = prepare_padding_mask(attention_mask, kv_length, kv_offset)
    return _evaluated(mask_function, batch_size, q_length, kv_length, q_offset, kv_offset, padding, device)


def _evaluated(mask_function, batch_size, q_length, kv_length, q_offset, kv_offset, padding, device):
    head = torch.zeros((1, 1, 1, 1), dtype=torch.long, device=device)
    columns = (torch.arange(kv_length, device=device) + kv_offset)[None, None, None, :]
    masks = []
    for b in range(batch_size):
        batch = torch.full((1, 1, 1, 1), b, device=device)
        bands = []
        for first in range(0, q_length, _ROWS_AT_ONCE):
            count = min(_ROWS_AT_ONCE, q_length - first)
            rows = (torch.arange(first, first + count, device=device) + q_offset)[None, None, :, None]
            visible = mask_function(batch, head, rows, columns).expand(1, 1, count, kv_length)[0, 0]
            if padding is not None:
                visible = visible & padding[b, kv_offset:kv_offset + kv_length].to(device=device, dtype=torch.bool)
            bands += [(q0 + first, q1 + first, k0, k1, lo if lo == Mask.UNBOUNDED_BELOW else lo - first,
                       hi if hi == Mask.UNBOUNDED_ABOVE else hi - first)
                      for q0, q1, k0, k1, lo, hi in Mask.from_dense(visible).bands()]
        masks.append(Mask.from_bands(bands, q_length, kv_length))
    return masks[0] if batch_size == 1 else Mask.batch(masks)


def attention_forward(module, query, key, value, attention_mask, scaling=None, dropout=0.0, softcap=None, s_aux=None,
                      is_causal=None, **_):
    """For AttentionInterface. query [batch, heads, tokens, head_dim], key and value [batch, heads_kv, ..]. Returns o
    [batch, tokens, heads, head_dim] and None. softcap: of the scores. s_aux: sinks. Raises NotImplementedError for
    dropout and masks that are not this module's."""
    if dropout:
        raise NotImplementedError(f"attention_dropout={dropout}: longspan has no dropout; set it to 0 in the config")
    batch, _, rows, _ = query.shape
    columns = key.shape[2]
    if _sharded is not None:
        o = _sharded.place.cp.attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), attention_mask,
                                        scale=scaling, softcap=softcap, sinks=s_aux)
        return o, None
    if attention_mask is None:
        causal = rows > 1 and (getattr(module, "is_causal", True) if is_causal is None else is_causal)
        attention_mask = Mask.batch([_plain(rows, columns, causal)] * batch)
    elif not isinstance(attention_mask, Mask):
        raise NotImplementedError(f"attention_mask is a {type(attention_mask).__name__}: longspan needs a mask that "
                                  "Transformers makes through AttentionMaskInterface, or a longspan.Mask")
    o = attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), attention_mask, scale=scaling,
                  softcap=softcap, sinks=s_aux)
    return o, None


def _plain(rows, columns, causal):
    """The last row and the last key are aligned."""
    return Mask.from_cu_seqlens([0, rows], [0, columns], causal=causal)


class _Sharded:
    """The masks of a model on one placement, which keeps theirs for the next step."""

    def __init__(self, place):
        self.place = place

    def place_of(self, mask_function, causal_mask_function, attention_mask, device):
        """What the model's mask function and the placement's mask both show."""
        tokens = self.place.mask.shape[0]
        if attention_mask is None or attention_mask.shape[-1] != self.place.count or not bool(attention_mask.all()):
            raise ValueError("under context parallelism the model takes what shard_batch() makes of a batch: the placement's mask "
                             "knows the documents, and there is no padding")
        if mask_function is causal_mask_function:
            own = Mask.causal(tokens)
        else:
            own = _evaluated(mask_function, 1, tokens, tokens, 0, 0, None, device)
        known, key = self.place._of_models, tuple(own.bands())
        if key not in known:
            both = own & self.place.mask
            known[key] = None if both.area == self.place.mask.area else self.place.with_mask(both)
        return known[key] or self.place  # the placement must not keep itself


@contextlib.contextmanager
def context_parallel(place):
    """Within it, models of attn_implementation="longspan" run over the ranks of a longspan.distributed.Placement, on batches of
    shard_batch(). Each layer sees what its own mask (causal, sliding window, chunks) and the placement's mask both show."""
    global _sharded
    if _sharded is not None:
        raise ValueError("context_parallel() within context_parallel()")
    _sharded = _Sharded(place)
    try:
        yield place
    finally:
        _sharded = None


def shard_batch(place, input_ids, labels=None):
    """The arguments of a model for this rank's tokens of a packed batch [1, T]: input_ids, position_ids, attention_mask and, with
    labels, what its loss needs. Labels are those of Transformers: not shifted, -100 for tokens that do not count. The loss is then
    this rank's part of the mean over all tokens: it and the gradients are to be summed over the ranks."""
    device = input_ids.device
    batch = {"input_ids": place.shard(input_ids, 1), "position_ids": place.position_ids(device)[None],
             "attention_mask": torch.ones((1, place.count), dtype=torch.bool, device=device), "use_cache": False}
    if labels is not None:
        following = torch.nn.functional.pad(labels[:, 1:], (0, 1), value=-100)
        batch["labels"] = batch["shift_labels"] = place.shard(following, 1)
        batch["num_items_in_batch"] = (following != -100).sum()
    return batch
