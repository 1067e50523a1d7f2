"""Processes of a job as torchrun starts them: they meet by a token, beside strangers, and run only what their own suites hold."""

import os
import re
import socket
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

PROGRAM = os.environ["LONGSPAN_PROGRAM"]

# NCCL is not needed: a case on the CPU is announced to all ranks, and then skipped with the reason.
CASE = ["--strategy", "ring-p2p", "--ranks", "2", "--transport", "nccl", "--kernel", "cpu-flash", "--mask", "causal", "--heads", "2",
        "--head-dim", "16"]
PORT = 17000 + os.getpid() % 1500 * 2  # below the ports of the unit tests; two in a row


def start(rank, out, *arguments, **variables):
    environment = {name: value for name, value in os.environ.items() if not re.match("LONGSPAN_|TORCHELASTIC|SLURM|OMPI|PMIX", name)}
    environment |= {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(PORT), "LONGSPAN_JOB_TOKEN": "the token of these tests"} | variables
    return subprocess.Popen([PROGRAM, "run", *CASE, *(arguments or ["--seqlen", "64"]), "--out", str(out), "--allow-skipped"], env=environment,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ends(*processes):
    """(exit code, standard error) of each."""
    return [(process.returncode, err) for process in processes for _, err in [process.communicate(timeout=300)]]


class ProcessesTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.out = Path(holder.name) / "out"

    def test_they_meet_beside_strangers(self):
        rank_0 = start(0, self.out)
        strangers = []
        while len(strangers) < 200 and rank_0.poll() is None:
            try:
                strangers.append(socket.create_connection(("127.0.0.1", PORT + 1), timeout=60))
            except ConnectionRefusedError:
                time.sleep(0.01)  # rank 0 does not listen yet
        (code_0, err_0), (code_1, err_1) = ends(rank_0, start(1, self.out))
        for stranger in strangers:
            stranger.close()
        self.assertEqual((code_0, code_1), (0, 0), err_0 + err_1)
        self.assertIn("0 measured, 1 skipped, 0 failed", err_0)

    def test_without_a_token_they_refuse_to_meet(self):
        for token in [{"LONGSPAN_JOB_TOKEN": ""}, {"LONGSPAN_JOB_TOKEN": "", "TORCHELASTIC_RUN_ID": "none"}]:
            for code, err in ends(start(0, self.out, **token), start(1, self.out, **token)):
                self.assertEqual(code, 2, err)
                self.assertIn("set LONGSPAN_JOB_TOKEN on every rank", err)
                self.assertIn("--standalone", err)
                self.assertEqual(len(err.splitlines()), 1)

    def test_a_run_id_of_torchrun_is_a_token(self):
        token = {"LONGSPAN_JOB_TOKEN": "", "TORCHELASTIC_RUN_ID": "3f2a"}
        self.assertEqual([code for code, _ in ends(start(0, self.out, **token), start(1, self.out, **token))], [0, 0])

    def test_a_rank_runs_no_case_that_its_own_suite_lacks(self):
        _, (code_1, err_1) = ends(start(0, self.out), start(1, self.out, "--seqlen", "65"))
        self.assertRegex(err_1, r"rank 1: its suite lacks the case [0-9a-f]{16} of rank 0; start all ranks with one command")
        self.assertNotEqual(code_1, 0)


if __name__ == "__main__":
    unittest.main()
