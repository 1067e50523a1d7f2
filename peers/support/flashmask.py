"""FlashMask's two forms of a mask: bounds of the rows that each key is hidden from, and a grid of blocks. For each of its frameworks."""

import dataclasses

import numpy as np

from support.adapter import Unsupported, need_seen_rows, one_mask

BLOCK = 128
LONGEST_OF_BLOCKS = 128 << 10


@dataclasses.dataclass
class Form:
    bounds: np.ndarray  # int32 [1, 1 or heads_kv, tokens, 1 or 2 or 4]
    causal: bool
    blocks: np.ndarray | None = None  # int32 [1, 1 or heads_kv, tokens / 128, tokens / 128]

    def settings(self):
        return f"{self.bounds.shape[-1]} bounds per key" + ("" if self.blocks is None else ", block mask")


def form_of(problem, masks):
    """The form of these masks; raises Unsupported."""
    if problem.tokens_q != problem.tokens_kv:
        raise Unsupported("supports only square masks")
    for mask in masks:
        need_seen_rows(mask)
    if len(masks) > 1 or masks[0].blocks(BLOCK) is not None and not masks[0].is_full():
        return _form_of_blocks(problem, masks)
    form = one_mask(masks).start_end_rows()
    if form is None:
        raise Unsupported("supports at most one run of hidden rows below the diagonal and one above it per key")
    bounds, causal = form
    return Form(bounds[None, None], causal)


def _form_of_blocks(problem, masks):
    grids = [mask.blocks(BLOCK) for mask in masks]
    if any(grid is None for grid in grids):
        raise Unsupported("masks that differ by head must be made of 128 x 128 blocks")
    if problem.head_dim != 128 or problem.tokens_q > LONGEST_OF_BLOCKS:
        raise Unsupported("supports block masks only with head_dim 128 and at most 128K tokens")
    # Bounds that hide nothing: it accepts a block mask only together with bounds.
    bounds = np.zeros((1, len(masks), problem.tokens_kv, 2), dtype=np.int32)
    bounds[..., 0] = problem.tokens_q
    return Form(bounds, False, np.stack(grids)[None].astype(np.int32))
