"""block-only: a peer that claims to support only blocks of 128 x 128 in bf16, and refuses all of them; for tests of the messages."""

PEER = {"description": "blocks only, for tests", "framework": "python", "device": "cpu", "passes": ["forward"]}

import fake
from support.adapter import Unsupported, need_dtype

SIZE = 128


class Adapter(fake.Adapter):
    def read_mask(self, mask):
        return mask["bands"]

    def check(self, problem, masks, device):
        need_dtype(problem, "bf16")
        if problem.head_dim not in (64, 128):
            raise Unsupported("supports only head_dim 64 and 128")
        for bands in masks:
            if any(edge % SIZE for band in bands for edge in band[:4]) or any(band[4:] != [None, None] for band in bands):
                raise Unsupported("supports only masks of 128 x 128 blocks")
