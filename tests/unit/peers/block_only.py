"""block-only: a peer that takes blocks of 128 x 128 alone, in bf16, and none of them in fact: for tests of what is said of such."""

PEER = {"description": "blocks alone, for tests", "framework": "python", "device": "cpu", "passes": ["forward"]}

import fake
from support.adapter import Unsupported, need_dtype

SIZE = 128


class Adapter(fake.Adapter):
    def read_mask(self, mask):
        return mask["bands"]

    def check(self, problem, masks, device):
        need_dtype(problem, "bf16")
        if problem.head_dim not in (64, 128):
            raise Unsupported("has head_dim 64 and 128 alone")
        for bands in masks:
            if any(edge % SIZE for band in bands for edge in band[:4]) or any(band[4:] != [None, None] for band in bands):
                raise Unsupported("has masks of 128 x 128 blocks alone")
