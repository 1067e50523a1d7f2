"""fa4: FlashAttention-4 (flash_attn.cute), which compiles for the GPU that it finds.

Full, causal, windows and documents use its own options. Every other mask is given as lists of its full and partial tiles, and a function
that says which pairs of partial tiles are visible.
"""

PEER = {
    "description": "FlashAttention-4 (flash_attn.cute)",
    "framework": "torch",
    "package": "flash-attn-4",
    "device": "cuda",
    "passes": ["forward", "backward"],
    "masks": "all, most of them as lists of tiles",
    "colour": "#8a1c4a",
}

import functools
import importlib.metadata
import os

os.environ.setdefault("FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED", "1")  # compiled once per machine, not once per worker

import cutlass
import numpy as np
import torch
from flash_attn.cute import interface
from flash_attn.cute.block_sparsity import BlockSparseTensorsTorch
from flash_attn.cute.utils import scalar_to_ssa

from support import flash_family, seen, tiles
from support.adapter import Peer, Unsupported, need_dtype

TILE = 128  # rows and keys of a forward tile, keys of a backward tile, as its interface chooses on Hopper
SMALL = 64  # the forward tile that its interface accepts for blocks of 64
MOST_INTERVALS = 8
FEW_INTERVALS = 2  # up to this number, testing intervals takes fewer instructions than looking up blocks
LARGEST_HEAD_DIM = 128  # above it, the interface chooses other tiles


# Each function depends on a single number, and so does the compiled kernel. The tables are arguments, so masks share compiled kernels.


@functools.cache
def _by_row(slots):
    def mask_mod(batch, head, q, k, lengths, tables):
        return scalar_to_ssa(seen.by_intervals(*tables, slots, q[0], k[0]), cutlass.Boolean)

    return mask_mod


@functools.cache
def _by_key(slots):
    def mask_mod(batch, head, q, k, lengths, tables):
        return scalar_to_ssa(seen.by_intervals(*tables, slots, k[0], q[0]), cutlass.Boolean)

    return mask_mod


@functools.cache
def _by_block(sharing):  # query heads that share a mask
    def mask_mod(batch, head, q, k, lengths, tables):
        return scalar_to_ssa(seen.by_blocks(*tables, head[0] // sharing, q[0], k[0]), cutlass.Boolean)

    return mask_mod


def _backward_rows(head_dim):
    """Rows of a backward tile, for the finest lists that its interface accepts on Hopper."""
    return 128 if head_dim <= 64 else 64


def _table(values, device):  # [..., tokens or blocks]
    """Padded to whole tiles: the kernels also look up tokens past the end, and discard the result."""
    padding = [(0, 0)] * (values.ndim - 1) + [(0, -values.shape[-1] % TILE)]
    return torch.tensor(np.pad(values, padding), dtype=torch.int8 if values.dtype == bool else torch.int32, device=device)


def _lists(graded, heads, tile, device):
    """The lists of tiles of each mask's (partial, full), for one mask or for `heads` query heads."""
    each = heads // len(graded) if len(graded) > 1 else 1
    columns = []
    for grids in zip(*graded):
        number, indices = tiles.listed(grids)
        columns += [torch.tensor(x, device=device).repeat_interleave(each, 0)[None] for x in (number, indices)]
    return BlockSparseTensorsTorch(*columns, block_size=tile)


class ListsPlan(flash_family.FlashPlan):
    """`grade(tile)` gives (partial, full) of each mask in tiles of that shape; forward tiles are `side` x `side`. `mask_mod` looks up in
    `tables` which pairs of partial tiles are visible."""

    def __init__(self, problem, grade, side, mask_mod, tables, which, device):
        self.problem, self.boundaries = problem, None
        self.dense = functools.partial(interface.flash_attn_func, return_lse=True)
        lists = {"block_sparse_tensors": ((side, side), grade((side, side)))}
        if problem.backward:
            tile = (_backward_rows(problem.head_dim), TILE)
            lists["block_sparse_tensors_bwd"] = (tile, [(partial.T, full.T) for partial, full in grade(tile)])
        self.options = {"softmax_scale": problem.scale} | {
            name: _lists(graded, problem.heads_q, tile, device) for name, (tile, graded) in lists.items()}
        self.settings = "tiles " + ", backward ".join(f"{rows} x {columns}" for (rows, columns), _ in lists.values())
        if any(partial.any() for _, graded in lists.values() for partial, _ in graded):
            self.options |= {"mask_mod": mask_mod, "aux_tensors": [_table(x, device) for x in tables]}
            self.settings += f", {which}"


class Adapter(Peer):
    heeds_deterministic = True

    def versions(self):
        return {name: importlib.metadata.version(name) for name in ("flash-attn-4", "nvidia-cutlass-dsl")}

    def has_options(self, masks):
        return len(masks) == 1 and flash_family.expresses(masks[0])

    def check(self, problem, masks, device):
        need_dtype(problem, "bf16", "f16")
        if self.has_options(masks):
            return
        if torch.cuda.get_device_capability(device)[0] != 9 or problem.head_dim > LARGEST_HEAD_DIM:
            raise Unsupported(
                f"supports full, causal, windows and documents; its lists of tiles are used on Hopper, up to head_dim {LARGEST_HEAD_DIM}")
        if problem.deterministic and problem.backward:
            raise Unsupported("its backward pass over lists of tiles has no deterministic form on Hopper")
        if not all(mask.rectangles() for mask in masks):
            if len(masks) > 1:
                raise Unsupported("masks that differ by head must be made of blocks")
            self.interval_form(masks[0])

    def plan(self, problem, masks, device):
        self.check(problem, masks, device)
        if self.has_options(masks):
            return self.plan_options(problem, masks, device)
        if all(mask.rectangles() for mask in masks):
            return self.plan_blocks(problem, masks, device)
        rows, columns = masks[0].joined_row_intervals(), masks[0].columns
        grade = lambda tile: [tiles.of_intervals(*rows, columns, tile)]
        return ListsPlan(problem, grade, TILE, *self.interval_form(masks[0]), device)

    def plan_options(self, problem, masks, device):
        bind = functools.partial
        options = {"deterministic": problem.deterministic, "return_lse": True}
        return flash_family.plan(
            problem, masks, bind(interface.flash_attn_func, **options), bind(interface.flash_attn_varlen_func, **options),
            device, unbounded=None)

    def plan_blocks(self, problem, masks, device):
        parts = [mask.block_boundaries() for mask in masks]
        small = all(mask.blocks(SMALL) is not None for mask in masks) and any(mask.blocks(TILE) is None for mask in masks)
        grade = lambda tile: [tiles.of_blocks(*part, tile) for part in parts]
        if len(masks) == 1 and tiles.most_runs(parts[0][2]) <= FEW_INTERVALS:
            form = self.interval_form(masks[0])
        else:
            form = _by_block(problem.heads_q // len(masks)), tiles.owners(parts), "blocks looked up"
        return ListsPlan(problem, grade, SMALL if small else TILE, *form, device)

    def interval_form(self, mask):
        """(mask_mod, its tables, which) of the runs of keys per row, or of the runs of rows per key if these are fewer."""
        rows, keys = mask.joined_row_intervals(), mask.transposed().joined_row_intervals()
        slots = min(len(rows[0]), len(keys[0]))
        if slots > MOST_INTERVALS:
            raise Unsupported(f"is only given masks with at most {MOST_INTERVALS} runs of keys per row, or of rows per key")
        if slots == len(rows[0]):
            return _by_row(slots), rows, f"intervals per row {slots}"
        return _by_key(slots), keys, f"intervals per key {slots}"
