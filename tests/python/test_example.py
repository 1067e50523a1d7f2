"""The example trains, and its packed documents are the separate ones."""

import importlib.util
import pathlib
import re
import subprocess
import sys

import pytest
import torch

import ranks
from longspan.distributed import ContextParallel

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "train_packed.py"
STRATEGIES = ["ulysses", "ring-p2p", "ring-allgather", "usp", "loongtrain", "balanced"]
TINY = ["--tokens", "96", "--width", "32", "--layers", "2", "--heads", "4", "2", "--steps", "4", "--every", "1"]


def losses_of(*command):
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return [float(loss) for loss in re.findall(r"loss ([0-9.]+)", done.stdout)]


def test_two_ranks_have_the_losses_of_one():
    one = losses_of(EXAMPLE, *TINY)
    two = losses_of("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", EXAMPLE, *TINY, "--cp", "2")
    assert len(one) == 4 and two == pytest.approx(one, rel=2e-5)


def fifty_losses(strategies):
    """Of each strategy on the ranks of the group; None is one process."""
    spec = importlib.util.spec_from_file_location("train_packed", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    options = example.arguments().parse_args([*TINY, "--steps", "50"])
    return [[float(loss) for _, loss in example.train(options, "cpu", torch.float32,
                                                      strategy and ContextParallel(strategy=strategy, limit_s=60))]
            for strategy in strategies]


def test_all_strategies_train_alike():
    for one, *others in ranks.run(2, fifty_losses, [None, *STRATEGIES]):
        assert len(one) == 50 and one[-1] < 0.95 * one[0]
        for strategy, losses in zip(STRATEGIES, others):
            assert losses == pytest.approx(one, rel=1e-4), strategy


def test_it_learns_from_packed_documents():
    done = subprocess.run([sys.executable, EXAMPLE, "--check", "--steps", "12", "--tokens", "384"], capture_output=True,
                          text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "" and "separate" in done.stdout
    losses = [float(loss) for loss in re.findall(r"loss ([0-9.]+)", done.stdout)]
    assert losses[-1] < 0.7 * losses[0]
