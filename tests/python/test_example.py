"""The example trains, and its packed documents are the separate ones."""

import pathlib
import re
import subprocess
import sys

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "train_packed.py"


def test_it_learns_from_packed_documents():
    done = subprocess.run([sys.executable, EXAMPLE, "--check", "--steps", "12", "--tokens", "384"], capture_output=True,
                          text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "" and "separate" in done.stdout
    losses = [float(loss) for loss in re.findall(r"loss ([0-9.]+)", done.stdout)]
    assert losses[-1] < 0.7 * losses[0]
