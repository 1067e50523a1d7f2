"""Host time of longspan.attention on a GPU, beside PyTorch's own operators, on tensors so small that kernels take no time.

    PYTHONPATH=build-cuda/python python3 tools/probes/python_overhead.py
"""

import time

import torch

import longspan
from longspan import Mask, _ops


def host_us(call, count=200, rounds=5):
    """The shortest mean of a round, in microseconds. The queue of launches never fills."""
    for _ in range(100):
        call()
    best = float("inf")
    for _ in range(rounds):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            call()
        best = min(best, (time.perf_counter() - begin) / count * 1e6)
        torch.cuda.synchronize()
    return best


def main():
    mask = Mask.full(64)
    q = torch.randn(64, 1, 64, device="cuda", dtype=torch.bfloat16)
    plan = longspan.plan(mask, (1, 1), 64, torch.bfloat16, "cuda")
    trained, dense = q.clone().requires_grad_(), q[None].transpose(1, 2)
    sdpa = torch.nn.functional.scaled_dot_product_attention

    def backward(make, dout):
        torch.autograd.grad(make(), trained, dout)

    with torch.no_grad():
        calls = {
            "attention(mask)": lambda: longspan.attention(q, q, q, mask),
            "attention(plan)": lambda: longspan.attention(q, q, q, plan),
            "the operator": lambda: _ops.forward(q, q, q, plan.tensor),
            "sdpa": lambda: sdpa(dense, dense, dense),
            "aten add": lambda: torch.add(q, q),
            "aten var_mean, two outputs": lambda: torch.var_mean(q),
        }
        for name, call in calls.items():
            print(f"{name:32} {host_us(call):6.1f} us")
    for name, make, dout in (
        ("attention, both passes", lambda: longspan.attention(trained, trained, trained, mask), q),
        ("sdpa, both passes", lambda: sdpa(*[trained[None].transpose(1, 2)] * 3), dense),
        ("aten mul, both passes", lambda: trained * trained, q),
    ):
        print(f"{name:32} {host_us(lambda: backward(make, dout), 100, 3):6.1f} us")


main()
