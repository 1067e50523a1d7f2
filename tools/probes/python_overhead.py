"""Host time of longspan.attention on a GPU, beside PyTorch's own operators, on tensors so small that kernels take no time.

    PYTHONPATH=build-cuda/python python3 tools/probes/python_overhead.py
"""

import time

import torch

import longspan
from longspan import Mask, _ops


def host_us(calls, count=200, rounds=12):
    """The shortest mean of a round for each call, in microseconds. The queue of launches never fills. The calls take turns,
    since the host's clock changes."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            for _ in range(20):
                call()
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(count):
                call()
            best[name] = min(best[name], (time.perf_counter() - begin) / count * 1e6)
            torch.cuda.synchronize()
    for name, us in best.items():
        print(f"{name:32} {us:6.1f} us")


def main():
    mask = Mask.full(64)
    q = torch.randn(64, 1, 64, device="cuda", dtype=torch.bfloat16)
    plan = longspan.plan(mask, (1, 1), 64, torch.bfloat16, "cuda")
    trained = [q.clone().requires_grad_() for _ in range(3)]
    dense = q[None].transpose(1, 2)
    trained_dense = [dense.clone().requires_grad_() for _ in range(3)]
    sdpa = torch.nn.functional.scaled_dot_product_attention
    gru, gates = torch.ops.aten._thnn_fused_gru_cell, torch.randn(1, 192, device="cuda")
    hidden, bias = torch.randn(1, 64, device="cuda"), torch.randn(192, device="cuda")

    with torch.no_grad():
        calls = {
            "attention(mask)": lambda: longspan.attention(q, q, q, mask),
            "attention(plan)": lambda: longspan.attention(q, q, q, plan),
            "the operator": lambda: _ops.forward(q, q, q, plan.tensor),
            "sdpa": lambda: sdpa(dense, dense, dense),
            "aten add": lambda: torch.add(q, q),
            "aten var_mean, two outputs": lambda: torch.var_mean(q),
            "aten gru cell, two outputs": lambda: gru(gates, gates, hidden, bias, bias),
        }
        host_us(calls)
    passes = {
        "attention, both passes": (lambda: longspan.attention(*trained, mask), trained, q),
        "sdpa, both passes": (lambda: sdpa(*trained_dense), trained_dense, dense),
        "aten mul, both passes": (lambda: trained[0] * trained[1], trained[:2], q),
    }
    both = lambda make, inputs, dout: lambda: torch.autograd.grad(make(), inputs, dout)
    host_us({name: both(*parts) for name, parts in passes.items()}, 100)

    print("\nCalls of the CUDA runtime, us of the host under PyTorch's profiler, which makes them longer:")
    make, inputs, dout = passes["attention, both passes"]
    for name, call in (("forward", calls["attention(mask)"]),
                       ("both passes", lambda: torch.autograd.grad(make(), inputs, dout))):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU,
                                                torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profile:
            for _ in range(20):
                with torch.set_grad_enabled(name != "forward"):
                    call()
            torch.cuda.synchronize()
        runtime = [e for e in profile.key_averages() if e.key.startswith("cu") and "Synchronize" not in e.key]
        print(f"{name}: " + ", ".join(f"{e.count / 20:g} {e.key} {e.cpu_time_total / 20:.1f}" for e in runtime))


main()
