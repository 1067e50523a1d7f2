"""The example trains, and its packed documents are the separate ones."""

import pathlib
import re
import subprocess
import sys

import pytest

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "train_packed.py"


TINY = ["--tokens", "96", "--width", "32", "--layers", "2", "--heads", "4", "2", "--steps", "4", "--every", "1"]


def losses_of(*command):
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return [float(loss) for loss in re.findall(r"loss ([0-9.]+)", done.stdout)]


@pytest.mark.parametrize("strategy", ["balanced"])
def test_two_ranks_have_the_losses_of_one(strategy):
    one = losses_of(EXAMPLE, *TINY)
    two = losses_of("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", EXAMPLE, *TINY, "--cp", "2",
                    "--strategy", strategy)
    assert len(one) == 4 and two == pytest.approx(one, rel=2e-5)


def test_it_learns_from_packed_documents():
    done = subprocess.run([sys.executable, EXAMPLE, "--check", "--steps", "12", "--tokens", "384"], capture_output=True,
                          text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "" and "separate" in done.stdout
    losses = [float(loss) for loss in re.findall(r"loss ([0-9.]+)", done.stdout)]
    assert losses[-1] < 0.7 * losses[0]
