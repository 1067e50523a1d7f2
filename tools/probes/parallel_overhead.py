"""Host time of one context-parallel attention, on tensors so small that kernels and messages take little time.

    PYTHONPATH=build-cuda/python torchrun --standalone --nproc-per-node 1 tools/probes/parallel_overhead.py [--device cpu]
    PYTHONPATH=build-cuda/python torchrun --standalone --nproc-per-node 2 tools/probes/parallel_overhead.py [--ranks-alone]

On GPUs the host does not wait for the device, so the time is that of the calls: PyTorch's, ours, and those of the CUDA runtime, which
are counted under PyTorch's profiler. On the CPU nothing is launched and the kernels have 2 tokens, so that is the time without launches.
One rank, and --ranks-alone, which gives each rank a group of its own, send no message. longspan.attention() is measured beside them.
Both passes are measured with and without the thread by which autograd runs backward passes of a GPU: a training step wakes it once.
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


def runtime_calls(call, count=20):
    """The calls of the CUDA runtime in one call, with their number."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities, acc_events=True) as profile:
        for _ in range(count):
            call()
        torch.cuda.synchronize()
    events = [e for e in profile.key_averages() if e.key.startswith("cu") and e.count >= count]
    return ", ".join(f"{e.count / count:g} {e.key}" for e in events)


def measure(name, attend, parts, options, synchronize):
    """A line of times of a function of q, k, v. All ranks call it."""
    dout = torch.randn_like(parts[0])

    def forward():
        with torch.no_grad():
            attend(*parts)

    def both():
        torch.autograd.grad(attend(*parts), parts, dout)

    def both_on_one_thread():
        with torch.autograd.set_multithreading_enabled(False):
            both()

    calls = {"forward": forward, "both passes": both, "on one thread": both_on_one_thread}
    times = [f"{what} {shortest_us(call, options.count, options.rounds, synchronize):6.1f} us" for what, call in calls.items()]
    called = [f"    {what}: {runtime_calls(call)}" for what, call in list(calls.items())[:2]] if parts[0].is_cuda else []
    if dist.get_rank() == 0:
        print("\n".join([f"{name:26} " + "  ".join(times), *called]), flush=True)


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
    tokens, heads, head_dim, dtype = (128, 4, 64, torch.bfloat16) if cuda else (2, 1, 8, torch.float32)
    mask, synchronize = Mask.causal(tokens), torch.cuda.synchronize if cuda else lambda: None
    parts_of = lambda count: [torch.randn(count, heads, head_dim, device=device, dtype=dtype, requires_grad=True) for _ in range(3)]
    if dist.get_rank() == 0:
        print(torch.cuda.get_device_name(device) if cuda else "CPU", flush=True)
    measure("no parallelism", lambda q, k, v: longspan.attention(q, k, v, mask), parts_of(tokens), options, synchronize)
    for strategy in STRATEGIES:
        if strategy == "ulysses" and dist.get_world_size() > heads and groups is None:
            continue  # it takes at most one rank per head
        cp = ContextParallel(groups[dist.get_rank()] if groups else None, strategy)
        place = cp.place(mask, (heads, heads), head_dim, dtype)
        measure(f"{strategy}, ranks: {cp.size}", lambda q, k, v: cp.attention(q, k, v, place), parts_of(place.count), options,
                synchronize)
    dist.destroy_process_group()


main()
