"""flashmask: PaddlePaddle's FlashMask. A mask lists the rows that each key is hidden from, as two bounds below the diagonal and two above.

All dense patterns, and blocks of 128 x 128 through its block mask.
"""

PEER = {
    "description": "FlashMask in PaddlePaddle",
    "framework": "paddle",
    "package": "paddlepaddle-gpu",
    "device": "cuda",
    "passes": ["forward", "backward"],
    "masks": "all dense patterns; blocks of 128 x 128",
    "colour": "#8a1c4a",
}

import numpy as np
import paddle
from paddle.nn.functional.flash_attention import flashmask_attention

from support.adapter import Peer, Plan, Unsupported, need_dtype, need_seen_rows, one_mask

BLOCK = 128
LONGEST_OF_BLOCKS = 128 << 10


class FlashMaskPlan(Plan):
    def __init__(self, problem, causal, indices, blocks):
        self.problem, self.causal = problem, causal
        self.indices = paddle.to_tensor(indices)
        self.blocks = None if blocks is None else paddle.to_tensor(blocks)
        self.settings = f"{indices.shape[-1]} bounds per key" + ("" if blocks is None else ", block mask")

    def forward(self, q, k, v):
        self.inputs = []
        for x in (q, k, v):
            x = x.detach().unsqueeze(0)
            x.stop_gradient = not self.problem.backward
            self.inputs.append(x)
        self.o, self._lse = flashmask_attention(
            *self.inputs, startend_row_indices=self.indices, causal=self.causal, softmax_scale=self.problem.scale,
            return_softmax_lse=True, block_mask=self.blocks)
        return self.o.detach().squeeze(0)

    def lse(self):  # [1, heads, tokens, perhaps rounded up]
        return self._lse.detach().squeeze(0)[:, : self.problem.tokens_q]

    def backward(self, dout):
        gradients = paddle.grad([self.o], self.inputs, grad_outputs=[dout.unsqueeze(0)], retain_graph=True)
        return tuple(g.squeeze(0) for g in gradients)


class Adapter(Peer):
    heeds_deterministic = True

    def versions(self):
        return {"paddlepaddle-gpu": paddle.__version__}

    def plan(self, problem, masks, device):
        need_dtype(problem, "bf16", "f16")
        if problem.tokens_q != problem.tokens_kv:
            raise Unsupported("supports only square masks")
        if problem.deterministic and problem.backward:
            raise Unsupported("its backward pass is not deterministic")
        for mask in masks:
            need_seen_rows(mask)
        if len(masks) > 1 or masks[0].blocks(BLOCK) is not None and not masks[0].is_full():
            return self.plan_blocks(problem, masks)
        form = one_mask(masks).start_end_rows()
        if form is None:
            raise Unsupported("supports at most one run of hidden rows below the diagonal and one above it per key")
        indices, causal = form
        return FlashMaskPlan(problem, causal, indices[None, None], None)

    def plan_blocks(self, problem, masks):
        grids = [mask.blocks(BLOCK) for mask in masks]
        if any(grid is None for grid in grids):
            raise Unsupported("masks that differ by head must be made of 128 x 128 blocks")
        if problem.head_dim != 128 or problem.tokens_q > LONGEST_OF_BLOCKS:
            raise Unsupported("supports block masks only with head_dim 128 and at most 128K tokens")
        # Bounds that hide nothing: it accepts a block mask only together with bounds.
        indices = np.zeros((1, len(masks), problem.tokens_kv, 2), dtype=np.int32)
        indices[..., 0] = problem.tokens_q
        return FlashMaskPlan(problem, False, indices, np.stack(grids)[None].astype(np.int32))
