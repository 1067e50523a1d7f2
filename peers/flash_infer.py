"""flash-infer: FlashInfer's prefill kernels (flashinfer-python), forward only. Dense masks, and blocks of any sizes."""

PEER = {
    "description": "FlashInfer",
    "framework": "torch",
    "package": "flashinfer-python",
    "device": "cuda",
    "passes": ["forward"],
    "masks": "full, causal, causal windows, documents, blocks",
    "colour": "#6d7711",
}

import importlib.metadata
import inspect
import math

import flashinfer
import torch

from support.adapter import Peer, Plan, Unsupported, need_dtype, need_seen_rows
from support.masks import variable_blocks
from support.torch_device import DTYPES

HEAD_DIMS = (64, 128, 256)
WORKSPACE_BYTES = 128 << 20  # recommended by its documentation
INT_WORKSPACE_BYTES = 8 << 20  # the initial size in its wrappers
SPARSE_INDICES = 128 << 20  # likewise: the number of keys listed by all row blocks of all heads
# 0.5.3 needs that buffer made larger for long sequences; 0.7.2 makes it itself.
TAKES_SPARSE_INDICES = "vector_sparse_indices_buffer" in inspect.signature(
    flashinfer.VariableBlockSparseAttentionWrapper.reset_workspace_buffer).parameters


class ForwardPlan(Plan):
    """`run(q, k, v)` returns (o, lse) in the package's own form: lse is [tokens, heads], base 2."""

    def __init__(self, run, settings=""):
        self.run, self.settings = run, settings

    def forward(self, q, k, v):
        o, self._lse = self.run(q, k, v)
        return o

    def lse(self):
        return self._lse.T * math.log(2)


class BlocksPlan(Plan):
    """Blocks of any sizes, which may differ by KV head. The kernel wants [heads, tokens, head_dim]."""

    settings = "inputs copied to [heads, tokens, head_dim] outside the timed region"

    def __init__(self, wrapper):
        self.wrapper = wrapper

    def prepare(self, q, k, v, dout):
        self.own = [x.transpose(0, 1).contiguous() for x in (q, k, v)]

    def forward(self, q, k, v):
        o, self._lse = self.wrapper.run(*self.own, return_lse=True)
        return o.transpose(0, 1)

    def lse(self):  # [heads, tokens]
        return self._lse * math.log(2)


class Adapter(Peer):
    def versions(self):
        return {"flashinfer-python": importlib.metadata.version("flashinfer-python"), "torch": torch.__version__}

    def check(self, problem, masks, device):
        if problem.backward:
            raise Unsupported("has no backward pass")
        need_dtype(problem, "bf16", "f16")
        if problem.head_dim not in HEAD_DIMS:
            raise Unsupported(f"has head_dim {', '.join(map(str, HEAD_DIMS))}")
        for mask in masks:
            need_seen_rows(mask)
        if all(mask.rectangles() for mask in masks):
            return
        if len(masks) > 1:
            raise Unsupported("masks that differ by head must be made of blocks")
        window, documents = masks[0].window(), masks[0].documents()
        if documents is None and (window is None or window[1] != 0):
            # Only its fa2 backend accepts masks with one bit per pair, and it rounds weights to the inputs' dtype before adding them up.
            raise Unsupported(
                "supports full, causal, causal windows, documents and blocks; with other masks its lse is up to 1e-3 off")

    def plan(self, problem, masks, device):
        self.check(problem, masks, device)
        dense = len(masks) == 1 and (masks[0].window() is not None or masks[0].documents() is not None)
        if not dense and (parts := variable_blocks(masks)) is not None:
            return self.plan_blocks(problem, parts, device)
        mask = masks[0]
        single = lambda **options: lambda q, k, v: flashinfer.single_prefill_with_kv_cache(
            q, k, v, sm_scale=problem.scale, return_lse=True, **options)
        if mask.is_full() or mask.is_causal():
            return ForwardPlan(single(causal=mask.is_causal()))
        if (window := mask.window()) and window[1] == 0:
            return ForwardPlan(single(causal=True, window_left=window[0]))
        if documents := mask.documents():
            return self.plan_documents(problem, *documents, device)
        raise AssertionError("check() lets no other mask through")

    def plan_documents(self, problem, boundaries, causal, device):
        wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(
            torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=device), kv_layout="NHD")
        indptr = torch.tensor(boundaries, dtype=torch.int32, device=device)
        wrapper.plan(
            indptr, indptr, problem.heads_q, problem.heads_kv, problem.head_dim, causal=causal, sm_scale=problem.scale,
            q_data_type=DTYPES[problem.dtype])
        return ForwardPlan(lambda q, k, v: wrapper.run(q, k, v, return_lse=True))

    def plan_blocks(self, problem, parts, device):
        heads = parts[2].shape[0]
        if heads != problem.heads_kv:  # one mask for all heads: its own for each
            parts = [part.repeat(problem.heads_kv, axis=0) for part in parts]
        row_sizes, column_sizes, grid = parts
        workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=device)
        wrapper = flashinfer.VariableBlockSparseAttentionWrapper(workspace)
        if TAKES_SPARSE_INDICES and (listed := int((grid * column_sizes[:, None, :]).sum())) >= SPARSE_INDICES:
            wrapper.reset_workspace_buffer(
                workspace, torch.empty(INT_WORKSPACE_BYTES, dtype=torch.uint8, device=device),
                vector_sparse_indices_buffer=torch.empty(listed + 1, dtype=torch.int32, device=device))
        sizes = lambda values: torch.tensor(values, dtype=torch.int32, device=device)
        wrapper.plan(
            torch.tensor(grid, device=device), sizes(row_sizes), sizes(column_sizes), problem.heads_q, problem.heads_kv,
            problem.head_dim, sm_scale=problem.scale, q_data_type=DTYPES[problem.dtype])
        return BlocksPlan(wrapper)
