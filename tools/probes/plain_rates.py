"""The rates of PyTorch's own attention and matrix product by plain calls, timed by longspan's rule, for comparison with
`longspan run` on torch-cudnn, torch-fa2 and flex, and with its ceiling.

    python tools/probes/plain_rates.py [--results FILE.jsonl] [--kernels cudnn,fa2,flex] [--shapes full:8192,causal:8192]
                                          [--study]

With --results, each rate is printed next to that of the same case in the file, with their ratio. The exit status is 1 if one differs
by more than 5 %. --study also times the product under other conditions: pauses between samples, a warm cache, cuBLASLt.
"""

import argparse
import json
import statistics
import sys
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

HEADS_Q, HEADS_KV, HEAD_DIM = 64, 8, 128
ROW_S, LONGEST_ROW = 0.05, 64  # as in src/bench/cuda_testbed.cpp


class Timer:
    """The median by docs/reference/metrics.md, "On a GPU": samples without a pause, the L2 emptied before each, events around each."""

    def __init__(self, warmup_s, budget_s):
        self.warmup_s, self.budget_s = warmup_s, budget_s
        self.flush = torch.empty(2 * torch.cuda.get_device_properties(0).L2_cache_size, dtype=torch.uint8, device="cuda")

    def row(self, work, count, cold=True):
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
        torch.cuda._sleep(1_000_000)  # half a millisecond, to launch the first samples meanwhile
        for begin, end in events:
            if cold:
                self.flush.zero_()
            begin.record()
            work()
            end.record()
        torch.cuda.synchronize()
        return [begin.elapsed_time(end) * 1e-3 for begin, end in events]

    def median(self, work, rest_s=0.0, cold=True):
        work()
        length = lambda time_s: 1 if rest_s else max(1, min(LONGEST_ROW, round(ROW_S / time_s)))
        last = self.row(work, 1, cold)[-1]
        samples = []
        warm = time.perf_counter() + self.warmup_s
        while time.perf_counter() < warm:
            last = self.row(work, length(last), cold)[-1]
            time.sleep(rest_s)
        end = time.perf_counter() + self.budget_s
        while not samples or time.perf_counter() < end:
            samples += self.row(work, length(last), cold)
            last = samples[-1]
            time.sleep(rest_s)
        return statistics.median(samples)


def product(timer, transposed, **conditions):
    size = 8192
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    c = torch.empty_like(a)
    right = b.t() if transposed else b
    return 2 * size**3 / timer.median(lambda: torch.mm(a, right, out=c), **conditions)


def attention(kernel, mask, seqlen):
    """forward() -> (o, (q, k, v)), by the call that a user would write."""
    # The layout of a projection's output: [batch, tokens, heads, head_dim], viewed as [batch, heads, tokens, head_dim].
    make = lambda heads: torch.randn(
        1, seqlen, heads, HEAD_DIM, device="cuda", dtype=torch.bfloat16).transpose(1, 2).requires_grad_()
    q, k, v = make(HEADS_Q), make(HEADS_KV), make(HEADS_KV)
    causal = mask == "causal"
    if kernel == "flex":
        block_mask = None
        if causal:
            block_mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, seqlen, seqlen, device="cuda", _compile=True)
        compiled = torch.compile(flex_attention, dynamic=False)
        return lambda: (compiled(q, k, v, block_mask=block_mask, enable_gqa=True), (q, k, v))
    backend = {"torch-cudnn": SDPBackend.CUDNN_ATTENTION, "torch-fa2": SDPBackend.FLASH_ATTENTION}[kernel]

    def forward():
        with sdpa_kernel(backend):
            return scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True), (q, k, v)

    return forward


def rates(timer, kernel, mask, seqlen):
    """(direction, FLOP/s): the credited work over the median."""
    area = seqlen * seqlen if mask == "full" else seqlen * (seqlen + 1) // 2
    flops = 4 * area * HEADS_Q * HEAD_DIM
    forward = attention(kernel, mask, seqlen)
    yield "forward", flops / timer.median(forward)
    o, inputs = forward()
    gradient = torch.randn(1, seqlen, HEADS_Q, HEAD_DIM, device="cuda", dtype=torch.bfloat16).transpose(1, 2)
    yield "backward", 2.5 * flops / timer.median(
        lambda: torch.autograd.grad(o, inputs, gradient, retain_graph=True))


def read_results(paths):
    """{(kernel, mask, seqlen, direction): FLOP/s} and the ceiling for bf16."""
    found, ceiling = {}, None
    for path in paths:
        with open(path) as file:
            for line in map(json.loads, file):
                if line["type"] == "run":
                    ceiling = line["ceilings"].get("bf16", {}).get("flops_per_s", ceiling)
                elif line["type"] == "case" and line["status"] == "ok":
                    case = line["case"]
                    if (case["heads_q"], case["heads_kv"], case["head_dim"]) == (HEADS_Q, HEADS_KV, HEAD_DIM):
                        found[case["kernel"], case["mask"], case["seqlen"], case["direction"]] = line["flops_per_s"]
    return found, ceiling


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", nargs="*", default=[])
    parser.add_argument("--kernels", default="torch-cudnn,torch-fa2,flex")
    parser.add_argument("--shapes", default="full:8192,causal:8192,causal:32768")
    parser.add_argument("--warmup-s", type=float, default=0.2)
    parser.add_argument("--budget-s", type=float, default=0.5)
    parser.add_argument("--study", action="store_true")
    options = parser.parse_args()
    measured, ceiling = read_results(options.results)
    timer = Timer(options.warmup_s, options.budget_s)
    off = []

    def show(what, rate, other, bound):
        text = f"{what:40} {rate / 1e12:7.1f} TFLOP/s"
        if other is not None:
            text += f"   longspan {other / 1e12:7.1f}   ratio {other / rate:.3f}"
            if bound and not 0.95 <= other / rate <= 1.05:
                off.append(what)
        print(text, flush=True)

    best = max(product(timer, transposed) for transposed in (False, True))
    show("product 8192^3, the better layout", best, ceiling, True)
    if options.study:
        rested = dict(rest_s=0.02)
        for name, conditions in {"no rest, cold": {}, "no rest, warm": dict(cold=False), "rests of 20 ms, cold": rested,
                                 "rests of 20 ms, warm": dict(cold=False, **rested)}.items():
            for library in ("cublas", "cublaslt"):
                torch.backends.cuda.preferred_blas_library(library)
                for transposed in (False, True):
                    what = f"  {library} {'A B^T' if transposed else 'A B'}, {name}"
                    show(what, product(timer, transposed, **conditions), None, False)
        torch.backends.cuda.preferred_blas_library("default")
    for kernel in options.kernels.split(","):
        for shape in options.shapes.split(","):
            mask, seqlen = shape.split(":")
            for direction, rate in rates(timer, kernel, mask, int(seqlen)):
                other = measured.get((kernel, mask, int(seqlen), direction))
                show(f"{kernel} {mask} {seqlen} {direction}", rate, other, True)
    if off:
        print(f"differs by more than 5 %: {'; '.join(off)}")
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main())
