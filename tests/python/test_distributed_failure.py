"""A rank that dies or hangs ends all ranks with a reason, and a fresh process group works afterwards."""

import contextlib
import multiprocessing
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile

import pytest
import torch
import torch.distributed as dist

import elastic_training
import longspan.distributed
from conftest import inputs
from longspan import Mask
from longspan._transport import Carried
from longspan.distributed import ContextParallel
from ranks import LIMIT_S as LIMIT_OF_START_S
from ranks import Ranks

LIMIT_S = 15  # of a wait; the other processes may be slow on a busy machine
MASK = Mask.causal(64)


def attend(cp):
    place = cp.place(MASK, (4, 2), 8, torch.float32)
    parts = [place.shard(x) for x in inputs(64, 64, head_dim=8)]
    torch.autograd.grad(cp.attention(*parts, place).sum(), parts)


def unshard(cp):
    place = cp.place(MASK, (4, 2), 8, torch.float32)
    place.unshard(torch.zeros(place.count))


def lose_rank(strategy, lost, how, act):
    """What the other ranks say, twice."""
    attend(ContextParallel(strategy=strategy, limit_s=60))  # what is slow only at first
    dist.barrier()
    cp = ContextParallel(strategy=strategy, limit_s=LIMIT_S)
    attend(cp)
    if dist.get_rank() == lost:
        os.kill(os.getpid(), how)
    reasons = []
    for _ in range(2):
        try:
            act(cp)
        except RuntimeError as error:
            reasons.append(str(error))
    return reasons


def start_again(folder, rank, size):
    dist.destroy_process_group()
    dist.init_process_group("gloo", init_method=f"file://{folder}/again", rank=rank, world_size=size)
    attend(ContextParallel(strategy="ring-p2p", limit_s=60))
    return True


@pytest.mark.parametrize("how, words", [(signal.SIGKILL, "lost"), (signal.SIGSTOP, f"waited longer than {LIMIT_S} s for")])
@pytest.mark.parametrize("strategy, lost, act", [("ring-p2p", 2, attend), ("ulysses", 0, attend), ("balanced", 1, unshard)])
def test_a_lost_rank_ends_all(strategy, lost, act, how, words):
    ranks = Ranks(3)
    others = [rank for rank in range(3) if rank != lost]
    try:
        ranks.start(lose_rank, strategy, lost, how, act)
        reasons = ranks.results(others)
        assert all(len(of_rank) == 2 for of_rank in reasons), "the group does not stay ended"
        assert any(f"rank {rank} {words}" in of_rank[0] for rank, of_rank in zip(others, reasons)), reasons
        assert all("lost" in of_rank[0] or "waited longer" in of_rank[0] for of_rank in reasons), reasons
        with tempfile.TemporaryDirectory() as folder:
            for new, rank in enumerate(others):
                ranks.start_on(rank, start_again, folder, new, len(others))
            assert ranks.results(others) == [True, True]
    finally:
        ranks.stop()
    assert not any(process.is_alive() for process in ranks.processes)


def ranks_in(folder):
    """The processes that have run elastic_training.py in this folder."""
    return [int(path.name.split("-")[1]) for path in folder.glob("process-*")]


def test_torchrun_starts_again(tmp_path):
    """A rank that is killed ends the other one, with the reason; torchrun starts both again, and they train on."""
    weight, expected = elastic_training.first_weight().requires_grad_(), []
    for step in range(elastic_training.STEPS):
        mask = elastic_training.mask_of(step)
        loss = elastic_training.losses_of(step, weight, lambda q, k, v: longspan.attention(q, k, v, mask)).mean()
        loss.backward()
        elastic_training.descend(weight)
        expected.append(float(loss.detach()))
    # Otherwise new processes may find addresses of ended ones: https://github.com/pytorch/pytorch/issues/135712
    environment = os.environ | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    # By an address: the ranks wait for ever where the host's own name does not resolve.
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", "2",
                "--max-restarts", "1"]
    try:
        done = subprocess.run([*torchrun, elastic_training.__file__, str(tmp_path)], env=environment, capture_output=True, text=True,
                              timeout=300)
    except subprocess.TimeoutExpired as late:
        for process in ranks_in(tmp_path):  # in sessions of their own, and deaf to SIGTERM
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        pytest.fail(f"not done within {late.timeout} s: {(late.stderr or b'').decode()}")
    assert done.returncode == 0, done.stderr
    lines = re.findall(r"attempt (\d) step (\d) loss ([0-9.]+)", done.stdout)
    assert [(int(attempt), int(step)) for attempt, step, _ in lines] == [(step >= elastic_training.DIES_AT, step) for step in range(6)]
    assert [float(loss) for *_, loss in lines] == pytest.approx(expected, rel=1e-4)
    assert re.search("RuntimeError: rank 0 lost (rank 1|a rank)", done.stderr), done.stderr
    processes = ranks_in(tmp_path)
    assert len(processes) == 4 and not any(pathlib.Path(f"/proc/{process}").exists() for process in processes)


def interrupt(backward):
    """Ctrl-C on rank 0 while it waits for a message."""
    cp = ContextParallel(strategy="ring-p2p", limit_s=LIMIT_S)
    place = cp.place(MASK, (4, 2), 8, torch.float32)
    parts = [place.shard(x) for x in inputs(64, 64, head_dim=8)]
    o = cp.attention(*parts, place)
    if dist.get_rank() == 0:
        def wait(*_):
            raise KeyboardInterrupt("of the test")
        Carried.wait = wait
    with pytest.raises(KeyboardInterrupt, match="of the test") if dist.get_rank() == 0 else contextlib.suppress(RuntimeError):
        if backward:
            o.sum().backward()
        else:
            cp.attention(*parts, place)
    return True


@pytest.mark.parametrize("backward", [False, True])
def test_an_interrupt_stays_one(backward):
    ranks = Ranks(2)
    try:
        ranks.start(interrupt, backward)
        assert ranks.results() == [True, True]
    finally:
        ranks.stop()


def lack_memory(where):
    """What the ranks say when rank 1 has no memory left before the pass."""
    tokens = 1 << 17
    cp = ContextParallel(strategy="ring-p2p", limit_s=LIMIT_S)
    place = cp.place(Mask.window(tokens, 1, 1), (4, 2), 64, torch.float32)
    plan = place.plan(torch.float32, "cpu", backward=False)
    q, k, v = (torch.zeros(place.count, heads, 64) for heads in (4, 2, 2))
    dist.barrier()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    if cp.rank == 1 and where == "operator":
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + q.nbytes // 2, limits[1]))
    elif cp.rank == 1:
        def autocast(*_):
            raise torch.OutOfMemoryError("failed to allocate")
        longspan.distributed.autocast = autocast
    try:
        with torch.no_grad():
            cp.attention(q, k, v, plan)
    except RuntimeError as error:
        return str(error)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


@pytest.mark.parametrize("where", ["attention", "operator"])
def test_a_rank_without_memory_says_so(where):
    ranks = Ranks(2)
    try:
        ranks.start(lack_memory, where)
        waited, failed = ranks.results()
        assert "failed to allocate" in failed and f"rank 1: {failed}" in waited
    finally:
        ranks.stop()


def threads_of_gloo():
    names = []
    for task in pathlib.Path("/proc/self/task").iterdir():
        try:
            names.append((task / "comm").read_text())
        except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            pass
    return [name for name in names if "gloo_runloop" in name]


def threads_after_destroying():
    """A thread of gloo that outlives its group may drop a tensor of Python while Python ends, which ends the process by abort()."""
    cp = ContextParallel(limit_s=60)
    attend(cp)
    before = len(threads_of_gloo())
    dist.destroy_process_group()
    with pytest.raises(RuntimeError, match="was destroyed"):
        unshard(cp)
    return before, len(threads_of_gloo())


def test_a_process_group_ends_though_plans_live():
    ranks = Ranks(2)
    try:
        ranks.start(threads_after_destroying)
        assert all(before > 0 and after == 0 for before, after in ranks.results())
    finally:
        ranks.stop()


def train_alone(store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    layer = torch.nn.Linear(2, 2)
    layer(torch.ones(2)).sum().backward()
    torch.optim.AdamW(layer.parameters()).step()
    before = len(threads_of_gloo())
    dist.destroy_process_group()
    assert before > 0 and not threads_of_gloo(), (before, threads_of_gloo())


def test_a_process_group_ends_though_an_optimizer_worked(tmp_path):
    process = multiprocessing.get_context("spawn").Process(target=train_alone, args=(tmp_path / "store",))
    process.start()
    process.join(LIMIT_OF_START_S)
    process.kill()
    assert process.exitcode == 0


def test_a_rank_that_dies_fails_its_test():
    ranks = Ranks(1)
    ranks.start(os._exit, 3)
    with pytest.raises(AssertionError, match="rank 0 died with exit code 3"):
        ranks.results()
    with pytest.raises(OSError):
        ranks.start(os.getpid)
