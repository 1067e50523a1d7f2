"""A run that is killed leaves no process behind: neither the children that measure, nor the workers of peers."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

PROGRAM = os.environ["LONGSPAN_PROGRAM"]
PATIENCE_S = 120

# A peer whose import never ends.
PEER = """
PEER = {"description": "never ends", "framework": "numpy", "device": "cpu", "passes": ["forward"]}

import os
import time

open(os.environ["STARTED"], "w").close()
while True:
    time.sleep(0.01)
"""


def members(session):
    """The processes of a session that have not ended, as {pid: name}."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, rest = (folder / "stat").read_text().rsplit(")", 1)
        except OSError:
            continue
        fields = rest.split()
        if int(fields[3]) == session and fields[0] not in "ZX":
            found[int(folder.name)] = name.split("(", 1)[1]
    return found


def wait_until(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


class OrphansTest(unittest.TestCase):
    def killed(self, words, more, environment=None):
        """Starts the program, kills it once it has `more` processes, and returns those that stay."""
        with tempfile.TemporaryDirectory() as folder:
            process = subprocess.Popen([PROGRAM, *words, "--out", folder + "/out"], start_new_session=True,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                       env={**os.environ, **(environment or {})})
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
            self.assertTrue(wait_until(lambda: more(members(process.pid))), members(process.pid))
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            wait_until(lambda: not members(process.pid))
            return members(process.pid)

    def test_a_child_that_measures(self):
        left = self.killed(["run", "--kernel", "cpu-naive", "--mask", "full", "--seqlen", "8K", "--budget-s", "600",
                            "--max-samples", "100000"], lambda found: len(found) >= 2)
        self.assertEqual(left, {})

    def test_a_worker_of_a_peer(self):
        with tempfile.TemporaryDirectory() as folder:
            started = Path(folder) / "started"
            peers = Path(PROGRAM).resolve()
            source = next(f for f in (peers.parent / "../peers", peers.parent / "../../peers") if (f / "worker.py").exists())
            copied = Path(folder) / "peers"
            shutil.copytree(source, copied)
            (copied / "never_ends.py").write_text(PEER)
            left = self.killed(["run", "--kernel", "never-ends", "--mask", "full", "--seqlen", "64"],
                               lambda found: started.exists(),
                               {"LONGSPAN_PEERS": str(copied), "STARTED": str(started)})
            self.assertEqual(left, {})


if __name__ == "__main__":
    unittest.main()
