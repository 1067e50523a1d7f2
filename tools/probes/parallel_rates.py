"""Rates of context-parallel attention from PyTorch, a line of JSON for each case, beside PyTorch's own context_parallel.

    PYTHONPATH=build-cuda/python torchrun --standalone --nproc-per-node 2 tools/probes/parallel_rates.py \\
      [--strategy NAME...] [--mask causal documents] [--tokens-per-rank 8192 32768] [--heads 64 8] [--torch] [--steps N]

The runner's rates of the same cases, to compare with:

    longspan run --strategy ulysses,ring-p2p,balanced --transport nccl --ranks 2 --mask causal,causal_document --seqlen 16K,64K \\
      --heads 64:8 --dtype bf16 --direction fwd,bwd

A time is the slowest rank's, by events of the device; each pass is repeated, and the median counts. Documents have lengths of 1/16 of
the sequence on average. --torch adds PyTorch's context_parallel, which has only causal masks. --steps N also times N training steps
of a model of four layers. On the CPU, as a smoke check, use small sizes: --tokens-per-rank 128 --heads 4 2 --repeats 2.
"""

import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist

from longspan import Mask
from longspan.distributed import ContextParallel

HEAD_DIM = 128


class Clock:
    """Seconds on this rank's device."""

    def __init__(self, cuda):
        self.cuda = cuda

    def time(self, call):
        if not self.cuda:
            begin = time.perf_counter()
            call()
            return time.perf_counter() - begin
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3


def slowest(seconds):
    """The median over the repeats of the slowest rank's time."""
    times = torch.tensor(seconds, dtype=torch.float64)
    if torch.cuda.is_available():
        times = times.cuda()
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    return statistics.median(times.tolist())


def documents(tokens):
    generator, lengths = torch.Generator().manual_seed(0), []
    while (left := tokens - sum(lengths)) > 0:
        lengths.append(min(left, int(torch.randint(1, max(2, tokens // 8), (), generator=generator))))
    return Mask.documents(lengths)


def measure(attend, count, options, clock, device, dtype):
    """(forward, backward) seconds of attend(q, k, v) on this rank's `count` tokens."""
    heads, heads_kv = options.heads
    q, k, v = (torch.randn(count, h, HEAD_DIM, device=device, dtype=dtype, requires_grad=True)
               for h in (heads, heads_kv, heads_kv))
    dout = torch.randn_like(q)
    forward, backward = [], []
    for repeat in range(options.repeats + 2):
        dist.barrier()
        made = []
        forward.append(clock.time(lambda: made.append(attend(q, k, v))))
        dist.barrier()
        backward.append(clock.time(lambda: torch.autograd.grad(made[0], (q, k, v), dout)))
    return slowest(forward[2:]), slowest(backward[2:])


def train(attend, place, options, clock, device, dtype):
    """Seconds of a training step of four layers of attention and projections."""
    heads, heads_kv = options.heads
    width = heads * HEAD_DIM
    weights = [torch.randn(a, b, device=device, dtype=dtype).mul_(a**-0.5).requires_grad_()
               for _ in range(4) for a, b in ((width, (heads + 2 * heads_kv) * HEAD_DIM), (width, width))]
    optimizer = torch.optim.SGD(weights, lr=1e-3)
    start = torch.randn(place.count, width, device=device, dtype=dtype)

    def step():
        x = start
        for into, out in zip(weights[::2], weights[1::2]):
            q, k, v = (x @ into).unflatten(-1, (-1, HEAD_DIM)).split([heads, heads_kv, heads_kv], 1)
            x = x + attend(q, k, v).flatten(1) @ out
        place.loss_mean(x.float().square().mean(1)).backward()
        place.cp.sum_gradients(weights)
        optimizer.step()
        optimizer.zero_grad()

    times = [clock.time(step) for _ in range(options.steps + 2)]
    return slowest(times[2:])


def torch_context_parallel(cp, device):
    """(attend, close) by PyTorch, for causal masks."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor.experimental import context_parallel
    mesh = DeviceMesh.from_group(cp.group, device.type)
    unused = torch.zeros(2 * cp.size, device=device)
    context = context_parallel(mesh, buffers=[unused], buffer_seq_dims=[0])
    context.__enter__()

    def attend(q, k, v):
        group = q.shape[1] // k.shape[1]
        k, v = (x.repeat_interleave(group, 1) for x in (k, v))
        o = torch.nn.functional.scaled_dot_product_attention(*(x.transpose(0, 1)[None] for x in (q, k, v)), is_causal=True)
        return o[0].transpose(0, 1)

    return attend, lambda: context.__exit__(None, None, None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategy", nargs="+", default=["ulysses", "ring-p2p", "balanced"])
    parser.add_argument("--mask", nargs="+", default=["causal", "documents"], choices=["causal", "documents"])
    parser.add_argument("--tokens-per-rank", nargs="+", type=int, default=[8192, 32768])
    parser.add_argument("--heads", nargs=2, type=int, default=[64, 8])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--torch", action="store_true")
    options = parser.parse_args()
    cuda = torch.cuda.is_available()
    if options.torch and not cuda:
        parser.error("--torch needs GPUs: PyTorch's context_parallel has no attention on the CPU")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo")
    dtype, clock, size = torch.bfloat16 if cuda else torch.float32, Clock(cuda), dist.get_world_size()
    for per_rank in options.tokens_per_rank:
        tokens = per_rank * size
        masks = {"causal": Mask.causal(tokens), "documents": documents(tokens)}
        for name in options.mask:
            mask = masks[name]
            cases = [(strategy, ContextParallel(strategy=strategy)) for strategy in options.strategy]
            if options.torch and name == "causal":
                cases.append(("torch", ContextParallel(strategy="ring-p2p")))  # for tokens and losses alone
            for strategy, cp in cases:
                place = cp.place(mask, options.heads, HEAD_DIM, dtype)
                attend, close = lambda q, k, v: cp.attention(q, k, v, place), lambda: None
                if strategy == "torch":
                    attend, close = torch_context_parallel(cp, device)
                forward, backward = measure(attend, place.count, options, clock, device, dtype)
                flops = 4 * mask.area * options.heads[0] * HEAD_DIM / size
                row = {"attention": strategy, "ranks": size, "mask": name, "tokens_per_rank": per_rank,
                       "forward_s": forward, "forward_tflops": flops / forward / 1e12,
                       "backward_s": backward, "backward_tflops": 2.5 * flops / backward / 1e12}
                if options.steps:
                    row["step_s"] = train(attend, place, options, clock, device, dtype)
                close()
                if dist.get_rank() == 0:
                    print(json.dumps(row), flush=True)
    dist.destroy_process_group()


main()
