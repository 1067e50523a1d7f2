"""Kernels for test_bench.py, as a user's file has them."""

import torch

import longspan


def scores(problem, q, k):
    """[heads, rows, columns], with -inf for what the mask hides."""
    k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    visible = problem.plan if problem.plan is not None else problem.mask.to_dense().to(q.device)
    if visible.dim() == 3:
        visible = visible.repeat_interleave(q.shape[1] // visible.shape[0], 0)
    return (torch.einsum("qhd,khd->hqk", q, k) * problem.scale).masked_fill(~visible, float("-inf"))


def times_values(p, v):
    return torch.einsum("hqk,khd->qhd", p, v.repeat_interleave(p.shape[0] // v.shape[1], 1))


@longspan.bench.register("right")
def right(problem, q, k, v):
    return times_values(scores(problem, q, k).softmax(-1), v)


@torch.compile(backend="eager", dynamic=False)
def core(q, k, v, visible, scale):
    if not torch.compiler.is_compiling():
        raise RuntimeError("this was not compiled")
    return times_values((torch.einsum("qhd,khd->hqk", q, k) * scale).masked_fill(~visible, float("-inf")).softmax(-1), v)


@longspan.bench.register("compiled", backward=False)
def compiled(problem, q, k, v):
    return core(q, k, v, problem.mask.to_dense(), problem.scale)


def causal_alone(problem):
    causal = problem.mask.heads == 1 and problem.mask.bands() == longspan.Mask.causal(problem.tokens_q).bands()
    return None if causal else "supports only causal masks"


@longspan.bench.register("with-lse", supports=causal_alone, plan=lambda problem: problem.mask.to_dense(),
                         deterministic=True, backward=lambda problem, dout, q, k, v, o, lse: by_hand(problem, dout, q, k, v, o, lse))
def with_lse(problem, q, k, v):
    s = scores(problem, q, k)
    return times_values(s.softmax(-1), v), s.logsumexp(-1)


def by_hand(problem, dout, q, k, v, o, lse):
    group = q.shape[1] // k.shape[1]
    p = torch.exp(scores(problem, q, k) - lse[..., None])
    dp = torch.einsum("qhd,khd->hqk", dout, v.repeat_interleave(group, 1))
    ds = p * (dp - (dout * o).sum(-1).T[..., None]) * problem.scale
    summed = lambda x: x.unflatten(1, (-1, group)).sum(2)
    return (times_values(ds, k), summed(torch.einsum("hqk,qhd->khd", ds, q)),
            summed(torch.einsum("hqk,qhd->khd", p, dout)))


@longspan.bench.register("wrong")
def wrong(problem, q, k, v):
    """Sees one key too many: the next."""
    k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    visible = problem.mask.to_dense().roll(1, 1) | problem.mask.to_dense()
    s = (torch.einsum("qhd,khd->hqk", q, k) * problem.scale).masked_fill(~visible, float("-inf"))
    return times_values(s.softmax(-1), v)


@longspan.bench.register("wrong-gradient", backward=lambda problem, dout, q, k, v, o, lse: (q, k, v))
def wrong_gradient(problem, q, k, v):
    return right(problem, q, k, v)


@longspan.bench.register("no-gradient")
def no_gradient(problem, q, k, v):
    with torch.no_grad():
        return right(problem, q, k, v)


@longspan.bench.register("forward-only", backward=False)
def forward_only(problem, q, k, v):
    return right(problem, q, k, v)


@longspan.bench.register("transposed", backward=False)
def transposed(problem, q, k, v):
    return right(problem, q, k, v).transpose(0, 1)


@longspan.bench.register("raises", backward=False)
def raises(problem, q, k, v):
    raise KeyError("no such tile")


@longspan.bench.register("never-says-why", supports=lambda problem: False)
def never_says_why(problem, q, k, v):
    return right(problem, q, k, v)
