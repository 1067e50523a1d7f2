"""A dense additive mask, for kernels without a better way to express masks."""

import torch


def dense_bias(mask, dtype, device):
    """[1, 1, rows, columns]: 0 where visible, -inf elsewhere; rows padded in memory to 16 elements, as kernels require."""
    columns = (mask.columns + 15) // 16 * 16
    bias = torch.full((mask.rows, columns), float("-inf"), dtype=dtype, device=device)
    view = bias[:, : mask.columns]
    visible = mask.dense(device)
    view.masked_fill_(visible, 0.0)
    return view[None, None]
