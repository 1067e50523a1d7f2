"""Context parallelism on GPUs, through NCCL communicators of our own."""

import gc
import os
import signal
import threading

import pytest
import torch
import torch.distributed as dist

import longspan
import ranks
from conftest import gradients, inputs
from longspan import Mask
from longspan._transport import _look_after
from longspan.distributed import ContextParallel
from ranks import Ranks
from test_distributed import train_step

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


# ---- one GPU: a group of one rank has its NCCL communicator, executor, streams and operators all the same ----

@pytest.mark.gpu
def test_one_gpu():
    assert ranks.run(1, compare, STRATEGIES) == [True]


@pytest.mark.gpu
@pytest.mark.parametrize("how", ["plain", "checkpoint", "aot_eager"])
@pytest.mark.parametrize("strategy", ["balanced", "ulysses"])
def test_layers_share_a_placement(strategy, how):
    ranks.run(1, train_step, strategy, how, "cuda:0", torch.bfloat16, 256, 3e-2)


def compiled():
    """The results of eager mode and of one graph that inductor has compiled."""
    cp = ContextParallel(strategy="ring-p2p", limit_s=60)
    plan = cp.place(MASKS["documents"](), (8, 2), 64).plan()
    layer = lambda q, k, v: cp.attention(q * 2, k, v, plan).float().sin()
    parts = inputs(TOKENS, TOKENS, heads=(8, 2), head_dim=64, dtype=torch.bfloat16, device="cuda")
    for run in (layer, torch.compile(layer, fullgraph=True)):
        o = run(*parts)
        yield o.detach(), *torch.autograd.grad(o.sum(), parts)


def compiled_is_eager():
    for eager, graph in zip(*compiled()):
        assert float((eager.float() - graph.float()).abs().max()) <= 2e-2 * float(eager.abs().max())


@pytest.mark.gpu
def test_inductor():
    ranks.run(1, compiled_is_eager)


def steady_steps(count):
    """Steps of new masks: bytes of the GPU that are gone after some and after `count` more. PyTorch raises if it is made to wait."""
    cp = ContextParallel(strategy="balanced", limit_s=60)
    parts = inputs(TOKENS, TOKENS, heads=(8, 2), head_dim=64, dtype=torch.bfloat16, device="cuda")
    used = lambda: torch.cuda.mem_get_info()[1] - torch.cuda.mem_get_info()[0]

    def step(i):
        place = cp.place(Mask.documents([100 + i, TOKENS - 100 - i]), (8, 2), 64)
        torch.cuda.set_sync_debug_mode("error")
        try:
            torch.autograd.grad(cp.attention(*parts, place).sum(), parts)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    sizes = []
    for steps in (range(20), range(20, 20 + count)):
        for i in steps:
            step(i)
        torch.cuda.synchronize()
        sizes.append(used())
    return sizes


@pytest.mark.gpu
def test_new_masks_neither_wait_nor_grow():
    (before, after), = ranks.run(1, steady_steps, 200)
    assert after - before < 8 << 20


def autocast():
    cp = ContextParallel(strategy="balanced", limit_s=60)
    place = cp.place(Mask.causal(TOKENS), (8, 2), 64)
    parts = inputs(TOKENS, TOKENS, heads=(8, 2), head_dim=64, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        o = cp.attention(*parts, place)
    assert o.dtype == torch.bfloat16
    assert all(x.dtype == torch.float32 and x.isfinite().all() for x in torch.autograd.grad(o.float().sum(), parts))
    with torch.inference_mode():
        assert torch.equal(cp.attention(*(x.bfloat16() for x in parts), place), o)


@pytest.mark.gpu
def test_autocast_and_inference():
    ranks.run(1, autocast)


def watchers():
    return [thread for thread in threading.enumerate() if getattr(thread, "_target", None) is _look_after]


def end_a_group():
    """Whether no thread stays behind once NCCL's communicator was aborted. Another group works."""
    mask = Mask.causal(TOKENS)
    parts = [x.detach() for x in inputs(TOKENS, TOKENS, heads=(8, 2), head_dim=64, dtype=torch.bfloat16, device="cuda")]
    attend = lambda cp: cp.attention(*parts, cp.place(mask, (8, 2), 64))
    before, cp = len(watchers()), ContextParallel(strategy="ring-p2p", limit_s=60)
    expected = attend(cp)
    assert cp._transport(parts[0].device).look()
    cp._tell(parts[0].device, MemoryError("of the test"))
    assert not cp._transport(parts[0].device).look()
    again = ContextParallel(strategy="ring-p2p", limit_s=60)
    assert torch.equal(attend(again), expected)
    del cp, again, mask
    gc.collect()
    for thread in watchers()[before:]:
        thread.join(30)
    return len(watchers()) == before


@pytest.mark.gpu
def test_a_group_that_failed_is_replaced():
    assert ranks.run(1, end_a_group) == [True]


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
    assert ranks.run(1, capture) == [True]


# ---- two GPUs ----

@pytest.mark.gpu
@two_gpus
def test_two_gpus():
    assert ranks.run(2, compare, STRATEGIES) == [True, True]


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
    both = Ranks(2)
    try:
        both.start(lose_the_other, how)
        reason, = both.results([0])
        assert "rank 0" in reason and ("timed out" in reason or "NCCL" in reason)
    finally:
        both.stop()
