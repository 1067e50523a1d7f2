"""Context parallelism on GPUs, through NCCL communicators of our own."""

import os
import signal

import pytest
import torch
import torch.distributed as dist

import longspan
from conftest import gradients, inputs
from longspan import Mask
from longspan.distributed import ContextParallel
from ranks import Ranks

STRATEGIES = ["ulysses", "ring-p2p", "ring-allgather", "usp", "loongtrain", "balanced"]
TOKENS = 2048
LIMIT_S = 20  # of a wait; the other process may be slow on a busy machine
MASKS = {"causal": lambda: Mask.causal(TOKENS), "documents": lambda: Mask.documents([700, 1, 347, 1000]),
         "window": lambda: Mask.window(TOKENS, 100, 20)}
two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason=f"needs two GPUs, there are {torch.cuda.device_count()}")


def run_sharded(cp, place, parts):
    o, lse = cp.attention(*map(place.shard, parts), place, return_lse=True, deterministic=True)
    o, lse = place.unshard(o), place.unshard(lse, 1)
    grads = [gradient.float() for gradient in gradients(o, lse, parts)]
    for gradient in grads:
        dist.all_reduce(gradient, group=cp.group)
    return o.detach(), lse.detach(), *grads


def on_two_streams(cp, place, parts):
    """The results, the same from two streams one after another."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        first = run_sharded(cp, place, parts)
    torch.cuda.current_stream().wait_stream(side)
    second = run_sharded(cp, place, parts)
    assert all(torch.equal(a, b) for a, b in zip(first, second)), "the streams' results differ"
    return second


def compare(strategies):
    device = f"cuda:{dist.get_rank()}"
    for strategy in strategies:
        cp = ContextParallel(strategy=strategy, limit_s=60)
        for name, make in MASKS.items():
            mask = make()
            parts = inputs(TOKENS, TOKENS, heads=(8, 2), head_dim=64, dtype=torch.bfloat16, device=device)
            o, lse = longspan.attention(*parts, mask, return_lse=True)
            one = (o, lse, *gradients(o, lse, parts))
            place = cp.place(mask, (8, 2), 64)
            for mine, theirs in zip(on_two_streams(cp, place, parts), one):
                theirs = theirs.detach().float()
                finite = torch.isfinite(theirs)
                assert torch.equal(torch.isfinite(mine), finite), (strategy, name)
                error = (mine.float() - theirs)[finite].abs().max() / theirs[finite].abs().max()
                assert error < 2e-2, (strategy, name, float(error))
    return True


def run(size, function, *arguments):
    ranks = Ranks(size)
    try:
        ranks.start(function, *arguments)
        return ranks.results()
    finally:
        ranks.stop()


@pytest.mark.gpu
def test_one_gpu():
    assert run(1, compare, ["ring-p2p", "balanced"]) == [True]


def capture():
    """What a capture says, and that calls work afterwards."""
    cp = ContextParallel(strategy="ring-p2p", limit_s=60)
    place = cp.place(Mask.causal(TOKENS), (8, 2), 64)
    parts = [x.detach() for x in inputs(TOKENS, TOKENS, heads=(8, 2), head_dim=64, dtype=torch.bfloat16, device="cuda")]
    expected = cp.attention(*parts, place)
    with pytest.raises(RuntimeError, match="cannot be captured"):
        with torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode="thread_local"):
            cp.attention(*parts, place)
    return torch.equal(cp.attention(*parts, place), expected)


@pytest.mark.gpu
def test_capture_is_refused():
    assert run(1, capture) == [True]


@pytest.mark.gpu
@two_gpus
def test_two_gpus():
    assert run(2, compare, STRATEGIES) == [True, True]


def lose_the_other(how):
    """What rank 0 says when rank 1 is gone, and that the device is idle then."""
    mask = Mask.causal(TOKENS)
    parts = inputs(TOKENS, TOKENS, heads=(8, 2), head_dim=64, dtype=torch.bfloat16, device=f"cuda:{dist.get_rank()}")
    for limit_s in (60, LIMIT_S):  # the first one does what is slow only at first
        cp = ContextParallel(strategy="ring-p2p", limit_s=limit_s)
        place = cp.place(mask, (8, 2), 64)
        mine = [place.shard(x) for x in parts]
        cp.attention(*mine, place)
        torch.cuda.synchronize()
        dist.all_reduce(torch.zeros(1))
    if cp.rank == 1:
        os.kill(os.getpid(), how)
    for _ in range(1000):
        try:
            cp.attention(*mine, place)
            torch.cuda.synchronize()  # returns once our thread has aborted NCCL's kernels
        except RuntimeError as error:
            return str(error)
    return "no error"


@pytest.mark.gpu
@two_gpus
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_rank_ends_the_other(how):
    ranks = Ranks(2)
    try:
        ranks.start(lose_the_other, how)
        reason, = ranks.results([0])
        assert "rank 0" in reason and ("timed out" in reason or "NCCL" in reason)
    finally:
        ranks.stop()
