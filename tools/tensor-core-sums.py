#!/usr/bin/env python3
"""How tensor cores add, and the effect on lse: scores of one head by cuBLAS, by fp32 cores, and emulated.

Needs a Hopper GPU and PyTorch 2.8 or later. Findings: docs/lab/2026-11-sm90-forward.md, "The error of lse".
"""
import torch

ROWS, HEAD_DIM, HEADS, LARGE = 1500, 128, 8, 32


def emulate(q, k, cut, step):
    """Exact sums of `step` products; the running sum is truncated to the 24 bits of an fp32 after each."""
    sums = torch.zeros(q.shape[0], k.shape[0], dtype=torch.float64, device=q.device)
    for i in range(0, q.shape[1], step):
        sums = sums + q[:, i : i + step].double() @ k[:, i : i + step].double().T
        mantissa, exponent = torch.frexp(sums)
        sums = torch.ldexp(cut(mantissa * 2**24), exponent - 24)
    return sums


def main():
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    ways = {
        "tensor cores": lambda q, k: torch.mm(q, k.T.contiguous(), out_dtype=torch.float32),
        "fp32 cores": lambda q, k: q.float() @ k.float().T,
        "truncated each 16": lambda q, k: emulate(q, k, torch.trunc, 16),
        "truncated each 8": lambda q, k: emulate(q, k, torch.trunc, 8),
        "rounded each 16": lambda q, k: emulate(q, k, torch.round, 16),
    }
    figures = {name: torch.zeros(4, dtype=torch.float64) for name in ways}
    for _ in range(HEADS):
        q, k = (torch.randn(ROWS, HEAD_DIM, device="cuda").bfloat16() for _ in range(2))
        exact = q.double() @ k.double().T
        large = exact.abs() > LARGE
        scores = {name: way(q, k).double() for name, way in ways.items()}
        for name, s in scores.items():
            error = torch.logsumexp(s, 1) - torch.logsumexp(exact, 1)
            longer = ((s - exact) * exact.sign())[large].mean()
            same = (s == scores["tensor cores"]).double().mean()
            f = figures[name]
            f[0] = max(f[0].item(), error.abs().max().item())
            f[1:] += torch.stack([error.mean(), longer, same]).cpu() / HEADS
    print(f"{'scores by':20} lse: largest error, mean error; mean error of |score| > {LARGE}; equal to tensor cores")
    for name, f in figures.items():
        print(f"{name:20} {f[0]:.2e} {f[1]:+.2e} {f[2]:+.2e} {f[3]:.3f}")


if __name__ == "__main__":
    main()
