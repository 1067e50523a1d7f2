"""Host time of one context-parallel attention, on tensors so small that kernels and messages take little time.

    PYTHONPATH=build-cuda/python torchrun --standalone --nproc-per-node 1 tools/probes/parallel_overhead.py [--device cpu]
    PYTHONPATH=build-cuda/python torchrun --standalone --nproc-per-node 2 tools/probes/parallel_overhead.py [--ranks-alone]

On GPUs the host does not wait for the device, so the time is that of the calls: PyTorch's, ours, and the launches within. On the CPU
nothing is launched, but the kernels of 8 tokens and gloo's messages are within the time. One rank, and --ranks-alone, which gives each
rank a group of its own, send no message: they show what Python, the operator and the executor take. longspan.attention() is measured
beside them.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist

import longspan
from longspan import Mask
from longspan.distributed import ContextParallel

STRATEGIES = ["ulysses", "ring-p2p", "ring-allgather", "balanced"]


def shortest_us(call, count, rounds, synchronize):
    """The shortest mean of a round, in microseconds. The queue of launches never fills."""
    best = float("inf")
    for _ in range(rounds):
        for _ in range(5):
            call()
        synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            call()
        best = min(best, (time.perf_counter() - begin) / count * 1e6)
        synchronize()
    return best


def times_of(attend, parts, options, synchronize):
    dout = torch.randn_like(parts[0])

    def forward():
        with torch.no_grad():
            attend(*parts)

    def both():
        torch.autograd.grad(attend(*parts), parts, dout)

    return "  ".join(f"{name} {shortest_us(call, options.count, options.rounds, synchronize):7.1f} us"
                     for name, call in (("forward", forward), ("both passes", both)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks-alone", action="store_true")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    cuda = options.device == "cuda"
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo")
    groups = [dist.new_group([rank]) for rank in range(dist.get_world_size())] if options.ranks_alone else None
    dtype = torch.bfloat16 if cuda else torch.float32
    mask, synchronize = Mask.causal(128 if cuda else 8), torch.cuda.synchronize if cuda else lambda: None
    tensors = lambda count: [torch.randn(count, 4, 64, device=device, dtype=dtype, requires_grad=True) for _ in range(3)]
    say = print if dist.get_rank() == 0 else lambda *_, **__: None
    say(torch.cuda.get_device_name(device) if cuda else "CPU", flush=True)
    one = times_of(lambda q, k, v: longspan.attention(q, k, v, mask), tensors(mask.shape[0]), options, synchronize)
    say(f"{'no parallelism':16}          {one}", flush=True)
    for strategy in STRATEGIES:
        cp = ContextParallel(groups[dist.get_rank()] if groups else None, strategy)
        place = cp.place(mask, (4, 4), 64, dtype)
        times = times_of(lambda q, k, v: cp.attention(q, k, v, place), tensors(place.count), options, synchronize)
        say(f"{strategy:16} {cp.size} ranks  {times}", flush=True)
    dist.destroy_process_group()


main()
