"""The effect of FlexAttention's own tuning: its rates with default options, as in `longspan run`, and with
mode="max-autotune-no-cudagraphs", which tries its other tiles; and whether its backward pass then has tiles for blocks of 64.

    python tools/probes/flex_tuning.py [--cases full:8192,causal:8192,blocks64:16384,blocks128:16384]

64:8 heads, or 32:4 for blocks (density 0.1), head_dim 128, bf16; timed by longspan's rule (plain_rates.py).
"""

import argparse
import time

import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from plain_rates import Timer

HEAD_DIM, DENSITY = 128, 0.1
MODES = {"defaults": None, "max-autotune": "max-autotune-no-cudagraphs"}


def random_blocks(size, seqlen, heads_q, heads_kv):
    """(block mask, visible pairs per head): the same number of blocks in each row; the query heads of a KV head share blocks."""
    blocks = seqlen // size
    kept = max(1, round(DENSITY * blocks))
    generator = torch.Generator(device="cuda").manual_seed(42)
    order = torch.rand(heads_kv, blocks, blocks, device="cuda", generator=generator).argsort(-1)
    indices = order.to(torch.int32).repeat_interleave(heads_q // heads_kv, dim=0)[None].contiguous()
    number = torch.full((1, heads_q, blocks), kept, dtype=torch.int32, device="cuda")
    none = torch.zeros_like(number), torch.zeros_like(indices)
    mask = BlockMask.from_kv_blocks(*none, number, indices, BLOCK_SIZE=size, seq_lengths=(seqlen, seqlen))
    return mask, kept * size * seqlen


def problem(kind, seqlen):
    """(block mask, visible pairs per head, query heads, KV heads)"""
    if kind.startswith("blocks"):
        return *random_blocks(int(kind.removeprefix("blocks")), seqlen, 32, 4), 32, 4
    if kind == "full":
        return None, seqlen * seqlen, 64, 8
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, seqlen, seqlen, device="cuda", _compile=True)
    return mask, seqlen * (seqlen + 1) // 2, 64, 8


def rates(timer, kind, seqlen, mode):
    mask, area, heads_q, heads_kv = problem(kind, seqlen)
    make = lambda heads: torch.randn(
        1, seqlen, heads, HEAD_DIM, device="cuda", dtype=torch.bfloat16).transpose(1, 2).requires_grad_()
    q, k, v = make(heads_q), make(heads_kv), make(heads_kv)
    # As in peers/flex.py: without these options the forward pass has no tile for blocks of 64.
    options = {"fwd_BLOCK_M": 64, "fwd_BLOCK_N": 64} if kind == "blocks64" and mode is None else None
    compiled = torch.compile(flex_attention, dynamic=False, fullgraph=True, mode=mode)
    flops = 4 * area * heads_q * HEAD_DIM

    def forward():
        return compiled(q, k, v, block_mask=mask, enable_gqa=True, kernel_options=options)

    begin = time.perf_counter()
    with torch.no_grad():
        compiled(q.detach(), k.detach(), v.detach(), block_mask=mask, enable_gqa=True, kernel_options=options)
    yield "forward", flops / timer.median(lambda: compiled(
        q.detach(), k.detach(), v.detach(), block_mask=mask, enable_gqa=True, kernel_options=options)), time.perf_counter() - begin
    begin = time.perf_counter()
    o = forward()
    gradient = torch.randn_like(o)
    backward = lambda: torch.autograd.grad(o, (q, k, v), gradient, retain_graph=True)
    backward()
    yield "backward", 2.5 * flops / timer.median(backward), time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="full:8192,causal:8192,blocks64:16384,blocks128:16384")
    options = parser.parse_args()
    timer = Timer(0.2, 0.5)
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}")
    for case in options.cases.split(","):
        kind, seqlen = case.split(":")
        for name, mode in MODES.items():
            torch._dynamo.reset()
            try:
                for direction, rate, compiling in rates(timer, kind, int(seqlen), mode):
                    print(f"{case:16} {direction:8} {name:12} {rate / 1e12:7.1f} TFLOP/s   compiled and timed in {compiling:.0f} s", flush=True)
            except Exception as error:  # if it has no suitable tiles
                print(f"{case:16} {name:12} fails: {str(error).strip().splitlines()[0][:160]}", flush=True)


if __name__ == "__main__":
    main()
