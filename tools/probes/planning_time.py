"""Time to prepare a mask of packed documents: Longspan's plan beside FlexAttention's block mask, both passes, each alone.

    PYTHONPATH=build-cuda/python python3 tools/probes/planning_time.py
"""

import time

import torch
from torch.nn.attention.flex_attention import create_block_mask

import longspan

HEADS, HEAD_DIM = (32, 8), 128
make = torch.compile(create_block_mask)


def plan(lengths):
    return longspan.plan(longspan.Mask.documents(lengths), HEADS, HEAD_DIM)


def block_mask(lengths, create):
    owner = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths)).cuda()
    total = len(owner)
    return create(lambda b, h, q, k: (q >= k) & (owner[q] == owner[k]), None, None, total, total, device="cuda")


def median_ms(function, documents):
    times = []
    for lengths in documents:
        torch.cuda.synchronize()
        begin = time.perf_counter()
        kept = function(lengths)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
        del kept
    return sorted(times[len(times) // 3:])[len(times) // 3] * 1e3


def main():
    generator = torch.Generator().manual_seed(0)
    print("tokens   plan ms   block mask, compiled ms   block mask ms")
    for tokens in (32768, 65536, 131072, 262144):
        documents = []
        for _ in range(9):
            cuts = torch.randint(1, tokens, (15,), generator=generator).unique().tolist()
            documents.append([b - a for a, b in zip([0, *cuts], [*cuts, tokens])])
        row = [f"{median_ms(plan, documents):9.3f}"]
        for create in (make, create_block_mask):
            try:
                row.append(f"{median_ms(lambda lengths: block_mask(lengths, create), documents):12.1f}")
            except torch.OutOfMemoryError:
                row.append("out of memory")
            torch.cuda.empty_cache()
        print(f"{tokens:6}", *row)


main()
