"""Packed documents for kernels that see them as a batch of padded sequences."""

import torch


def unpacked_lse(lse, boundaries, tokens):
    """[heads, tokens] of [documents, heads, longest]."""
    begin = boundaries[:-1].long()
    lengths = boundaries[1:].long() - begin
    sequence = torch.repeat_interleave(torch.arange(len(lengths), device=lse.device), lengths)
    position = torch.arange(tokens, device=lse.device) - begin[sequence]
    return lse[sequence, :, position].T
