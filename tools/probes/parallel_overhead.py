"""Host time of one context-parallel attention, on tensors so small that kernels and messages take little time.

    PYTHONPATH=build-cuda/python torchrun --standalone --nproc-per-node 2 tools/probes/parallel_overhead.py [--ranks-alone]

On GPUs the host does not wait for the device, so the time is that of the calls: PyTorch's, ours, and the launches within. --ranks-alone
gives each rank a group of its own, so that no message is sent: what Python, the operator and the executor take. On the CPU, as a
smoke check, kernels and gloo's messages are within the time.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist

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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks-alone", action="store_true")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo")
    groups = [dist.new_group([rank]) for rank in range(dist.get_world_size())] if options.ranks_alone else None
    dtype = torch.bfloat16 if cuda else torch.float32
    mask, synchronize = Mask.causal(128 if cuda else 8), torch.cuda.synchronize if cuda else lambda: None
    for strategy in STRATEGIES:
        cp = ContextParallel(groups[dist.get_rank()] if groups else None, strategy)
        place = cp.place(mask, (4, 4), 64, dtype)
        q, k, v = (torch.randn(place.count, 4, 64, device=device, dtype=dtype, requires_grad=True) for _ in range(3))
        dout = torch.randn_like(q)

        def forward():
            with torch.no_grad():
                cp.attention(q, k, v, place)

        def both():
            torch.autograd.grad(cp.attention(q, k, v, place), (q, k, v), dout)

        times = {name: shortest_us(call, options.count, options.rounds, synchronize)
                 for name, call in (("forward", forward), ("both passes", both))}
        if dist.get_rank() == 0:
            print(f"{strategy:16} {cp.size} ranks  " + "  ".join(f"{name} {us:7.1f} us" for name, us in times.items()), flush=True)
    dist.destroy_process_group()


main()
