"""flex: PyTorch's FlexAttention, compiled, with a block mask. It supports every mask."""

PEER = {
    "description": "PyTorch's FlexAttention, compiled",
    "framework": "torch",
    "package": "torch",
    "device": "cuda",
    "passes": ["forward", "backward"],
    "masks": "all",
    "colour": "#3b9bcb",
}

import contextlib
import dataclasses
import importlib

import numpy as np
import torch
from torch._inductor.choices import InductorChoices
from torch._inductor.virtualized import V
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, create_block_mask, flex_attention

from support import tiles
from support.adapter import Peer, Plan, Unsupported, need_dtype


# Import what compiling needs now. A worker starts while other kernels are measured, and these imports take longer than compiling.
for module in (
        "torch._dynamo", "torch._inductor.compile_fx", "torch._inductor.kernel.flex.flex_attention",
        "torch._inductor.codegen.triton", "torch._higher_order_ops.triton_kernel_wrap", "triton.backends.nvidia.compiler"):
    with contextlib.suppress(ImportError):
        importlib.import_module(module)


def _formula(mask, device):
    """The mask as a function of indices, in its shortest exact form; None for all pairs."""
    if mask.is_full():
        return None
    if mask.is_causal():
        return lambda b, h, q, k: q >= k
    if window := mask.window():
        left, right = window
        if right < 0:
            return lambda b, h, q, k: q - k <= left
        if left < 0:
            return lambda b, h, q, k: k - q <= right
        return lambda b, h, q, k: (q - k <= left) & (k - q <= right)
    if documents := mask.documents():
        boundaries, causal = documents
        owner = torch.tensor(np.repeat(np.arange(len(boundaries) - 1), np.diff(boundaries)), device=device)
        if causal:
            return lambda b, h, q, k: (q >= k) & (owner[q] == owner[k])
        return lambda b, h, q, k: owner[q] == owner[k]
    begin, end = (torch.tensor(x, dtype=torch.int32, device=device) for x in mask.row_intervals())

    def sees(b, h, q, k):
        seen = (k >= begin[0][q]) & (k < end[0][q])
        for slot in range(1, len(begin)):
            seen = seen | ((k >= begin[slot][q]) & (k < end[slot][q]))
        return seen

    return sees


TILE = 128  # FlexAttention's own block size


def _listed(grids, heads_q, device):
    """(number, indices) of the true blocks of each row for each query head, from one grid per KV head."""
    grid = torch.tensor(np.stack(grids), device=device).repeat_interleave(heads_q // len(grids), dim=0)
    indices = torch.argsort(grid.to(torch.int8), dim=-1, descending=True, stable=True).to(torch.int32)
    return grid.sum(-1, dtype=torch.int32)[None], indices[None]


def _aligned_block_mask(grids, size, problem, device):
    """A block mask whose visible blocks, of the mask's own size, are all full."""
    number, indices = _listed(grids, problem.heads_q, device)
    return BlockMask.from_kv_blocks(
        torch.zeros_like(number), torch.zeros_like(indices), number, indices, BLOCK_SIZE=size,
        seq_lengths=(problem.tokens_q, problem.tokens_kv))


def _rectangle_block_mask(masks, problem, device):
    """A block mask for blocks of any sizes: tiles that a block boundary cuts look up their pairs."""
    parts = [mask.block_boundaries() for mask in masks]
    partial, full = zip(*(tiles.of_blocks(*part, (TILE, TILE)) for part in parts))
    lookup, row_owner, column_owner = (torch.tensor(x, device=device) for x in tiles.owners(parts))
    row_owner, column_owner = row_owner.int(), column_owner.int()
    group = problem.heads_q // len(masks)

    def sees(b, h, q, k):
        head = h // group
        return lookup[head, row_owner[head, q], column_owner[head, k]]

    return BlockMask.from_kv_blocks(
        *_listed(partial, problem.heads_q, device), *_listed(full, problem.heads_q, device), BLOCK_SIZE=TILE,
        mask_mod=sees, seq_lengths=(problem.tokens_q, problem.tokens_kv))


# Tiles for blocks of 64, for which FlexAttention's defaults are missing or slow. Its mode "max-autotune" finds these on an H200
# (tools/probes/flex_tuning.py). They are fixed here because each search takes half a minute or more.
SMALL_FORWARD = {"fwd_BLOCK_M": 64, "fwd_BLOCK_N": 64, "fwd_num_warps": 4, "fwd_num_stages": 3}
SMALL_BACKWARD = {"block_m1": 32, "block_n1": 64, "block_m2": 64, "block_n2": 32, "num_stages": 4, "num_warps": 4}


class SmallChoices(InductorChoices):
    """Inductor's own choices, except in the backward pass, where kernel options only allow tiles that its defaults divide."""

    def get_flex_attention_bwd_configs(self, *arguments, **named):
        return [dataclasses.replace(c, **SMALL_BACKWARD) for c in super().get_flex_attention_bwd_configs(*arguments, **named)[:1]]


class FlexPlan(Plan):
    def __init__(self, problem, function, block_mask, options):
        self.problem, self.function, self.block_mask, self.options = problem, function, block_mask, options
        settings = {**options, **(SMALL_BACKWARD if problem.backward else {})} if options else {}
        self.settings = ", ".join(f"{name} {value}" for name, value in settings.items())

    def forward(self, q, k, v):
        # Require gradients even without a backward pass, as in training, so that both cases of a mask compile the same forward pass.
        inputs = [x.detach().unsqueeze(0).transpose(1, 2).requires_grad_() for x in (q, k, v)]
        self.o, self.aux = self.function(
            *inputs, block_mask=self.block_mask, scale=self.problem.scale, enable_gqa=self.problem.group > 1,
            kernel_options=self.options, return_aux=AuxRequest(lse=True))
        self.inputs = inputs
        return self.o.detach()[0].transpose(0, 1)

    def lse(self):
        return self.aux.lse.detach()[0]

    def backward(self, dout):
        # In this thread: the first backward compiles, and Inductor's choices are per thread.
        with torch.autograd.set_multithreading_enabled(False):
            gradients = torch.autograd.grad(self.o, self.inputs, dout.unsqueeze(0).transpose(1, 2), retain_graph=True)
        return tuple(g[0].transpose(0, 1) for g in gradients)


class Adapter(Peer):
    takes_head_dim_v = True

    def __init__(self):
        for limit in ("recompile_limit", "accumulated_recompile_limit"):  # of masks in one case
            setattr(torch._dynamo.config, limit, 1 << 16)
        torch._inductor.config.compile_threads = 1  # one kernel at a time: a pool's start would take longer than it saves
        self.shape = self.function = None

    def versions(self):
        import triton

        return {"torch": torch.__version__, "triton": triton.__version__}

    def check(self, problem, masks, device):
        need_dtype(problem, "bf16", "f16", "f32")
        if len(masks) > 1 and not all(mask.rectangles() for mask in masks):
            raise Unsupported("masks that differ by head must be made of blocks")

    def compiled(self, problem, small=False):
        """The compiled function, shared by the two passes and by masks of this shape that differ only in numbers. Functions compiled for
        other shapes are dropped. small: with tiles for blocks of 64."""
        shape = (
            problem.tokens_q, problem.tokens_kv, problem.heads_q, problem.heads_kv, problem.head_dim, problem.head_dim_v,
            problem.dtype, small)
        if shape != self.shape:
            torch._dynamo.reset()
            self.shape, self.function = shape, torch.compile(flex_attention, dynamic=False, fullgraph=True)
            V.set_choices_handler(SmallChoices() if small else InductorChoices())  # for this thread
        return self.function

    def plan(self, problem, masks, device):
        self.check(problem, masks, device)
        if len(masks) > 1 or (masks[0].rectangles() and not masks[0].documents() and not masks[0].is_full()):
            return self.plan_blocks(problem, masks, device)
        function = self.compiled(problem)
        formula = _formula(masks[0], device)
        if formula is None:
            return FlexPlan(problem, function, None, None)
        block_mask = create_block_mask(
            formula, None, None, problem.tokens_q, problem.tokens_kv, device=str(device), _compile=True)
        return FlexPlan(problem, function, block_mask, None)

    def plan_blocks(self, problem, masks, device):
        for size in (TILE, TILE // 2):
            grids = [mask.blocks(size) for mask in masks]
            small = size != TILE
            if all(grid is not None for grid in grids) and not (small and problem.dtype == "f32"):
                return FlexPlan(
                    problem, self.compiled(problem, small), _aligned_block_mask(grids, size, problem, device),
                    SMALL_FORWARD if small else None)
        return FlexPlan(problem, self.compiled(problem), _rectangle_block_mask(masks, problem, device), None)
