"""`longspan run` started by mpirun, with one rank per process: the results that rank 0 writes, also when ranks fail."""

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

PROGRAM = os.environ["LONGSPAN_PROGRAM"]
MPIRUN = os.environ["LONGSPAN_MPIRUN"]
SMALL = ["--kernel", "cpu-flash", "--heads", "8:4", "--head-dim", "16", "--warmup-s", "0.001", "--min-samples", "6"]
QUICK = [*SMALL, "--budget-s", "0.02"]
DOCUMENTS = ["--mask", "causal_document", "--lengths", "uniform:40:90", "--seqlen", "700"]


def mpirun(ranks, *arguments, strange=None, how=""):
    """Rank number `strange` is started through this file, which makes it fail as `how` says."""
    command = [MPIRUN]
    for first, number in [(0, ranks)] if strange is None else [(0, strange), (strange, 1), (strange + 1, ranks - strange - 1)]:
        if number == 0:
            continue
        start = [sys.executable, __file__, "--strange", how] if first == strange else []
        command += [":"] * (len(command) > 1) + ["-np", str(number), *start, PROGRAM, "run", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=1200)


def cases_in(folder):
    lines = [json.loads(line) for line in (Path(folder) / "results.jsonl").read_text().splitlines()]
    return [line for line in lines if line["type"] == "case"]


class MpiRunTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = str(Path(holder.name) / "results")

    def test_every_strategy_agrees_with_its_result_on_threads(self):
        suite = Path(self.folder).parent / "both.toml"
        suite.write_text('''
            name = "both"
            description = "Strategies on processes and on threads."
            [rule]
            warmup_s = 0.001
            min_samples = 6
            budget_s = 0.02
            [[case]]
            kernel = ["cpu-flash"]
            mask = ["causal_document"]
            lengths = ["uniform:40:90"]
            seqlen = ["700"]
            heads = ["8:4"]
            head_dim = ["16"]
            direction = ["fwd", "bwd"]
            masks = ["2"]
            strategy = ["all"]
            ranks = ["4"]
            transport = ["mpi", "threads"]
        ''')
        result = mpirun(4, str(suite), "--out", self.folder)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(result.stdout.count("24 measured"), 1, "one process prints the table")
        self.assertEqual(sorted(p.name for p in Path(self.folder).iterdir()), ["results.jsonl"])
        pairs = {}
        for case in cases_in(self.folder):
            self.assertEqual(case["status"], "ok", case.get("reason"))
            self.assertEqual(case["accuracy"]["counting"], "pass")
            over = case["parallel"]["transport"]
            pairs.setdefault((case["case"]["strategy"], case["case"]["direction"]), {})[over] = case
        self.assertEqual(len(pairs), 6 * 2)
        for name, pair in pairs.items():
            with self.subTest(name):
                processes, threads = pair["mpi"], pair["threads"]
                self.assertNotEqual(processes["id"], threads["id"])
                for key in ["plan", "area", "sent_bytes", "predicted_bytes", "rounds", "imbalance", "difference"]:
                    self.assertEqual(processes["parallel"][key], threads["parallel"][key], key)
                self.assertEqual(processes["parallel"]["sent_bytes"], processes["parallel"]["predicted_bytes"])
                self.assertEqual(processes["accuracy"]["max_error"], threads["accuracy"]["max_error"])
                for key in ["compute_s", "rank_time_s"]:
                    self.assertEqual(len(processes["parallel"][key]), 4)
                    self.assertGreater(min(processes["parallel"][key]), 0)
                self.assertNotIn("share_of_ceiling", processes)
                self.assertIn("timing", processes["phases_s"])

    def test_a_run_is_resumed(self):
        arguments = ["--strategy", "ring-p2p", "--ranks", "2", "--transport", "mpi", *DOCUMENTS, *QUICK, "--out", self.folder]
        self.assertEqual(mpirun(2, *arguments, "--direction", "fwd").returncode, 0)
        again = mpirun(2, *arguments, "--direction", "fwd,bwd")
        self.assertNotEqual(again.returncode, 0)
        self.assertIn("--resume", again.stderr)
        resumed = mpirun(2, *arguments, "--direction", "fwd,bwd", "--resume")
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertIn("1 measured, 0 skipped, 0 failed, 1 measured before", resumed.stderr)
        self.assertEqual([c["case"]["direction"] for c in cases_in(self.folder)], ["forward", "backward"])

    def test_other_numbers_of_ranks_are_skipped_with_the_reason(self):
        result = mpirun(3, "--strategy", "balanced", "--ranks", "2,3,4", "--transport", "mpi", *DOCUMENTS, *QUICK, "--out",
                        self.folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        cases = {case["case"]["ranks"]: case for case in cases_in(self.folder)}
        self.assertEqual(cases[3]["status"], "ok")
        for ranks in [2, 4]:
            self.assertEqual(cases[ranks]["status"], "skipped")
            self.assertEqual(cases[ranks]["reason"], f"the case has {ranks} ranks, but Open MPI started 3 processes")

    def test_unneeded_processes_are_refused(self):
        result = mpirun(2, "--strategy", "balanced", "--ranks", "2", *DOCUMENTS, *QUICK, "--out", self.folder)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("Open MPI started 2 processes, but no case has ranks that are processes", result.stderr)
        self.assertFalse(Path(self.folder).exists())

    def test_processes_calibrate_their_links(self):
        machine = Path(__file__).parents[2] / "data" / "machines" / "cpu-2.json"
        out = Path(self.folder).parent / "machine.json"
        result = subprocess.run([MPIRUN, "-np", "2", PROGRAM, "calibrate", "--transport", "mpi", "--budget", "0.001", "--from",
                                 str(machine), "--out", str(out)], capture_output=True, text=True, timeout=1200)
        self.assertEqual(result.returncode, 0, result.stderr)
        before, after = json.loads(machine.read_text()), json.loads(out.read_text())
        for name, origin in (("port_bytes_per_s", "measured"), ("latency_s", "measured"), ("beside_bytes_per_s", "default")):
            self.assertEqual(after["links"]["mpi"][name]["origin"], origin)
        self.assertEqual(after["kernels"], before["kernels"])
        self.assertEqual(after["links"]["threads"], before["links"]["threads"])

    def test_ranks_that_calibrate_cannot_have_are_refused(self):
        out = Path(self.folder).parent / "machine.json"
        for processes, arguments, message in (
                (2, [], "Open MPI started 2 processes, but the ranks are threads"),
                (2, ["--transport", "nccl"], "NCCL connects GPUs; cpu-flash runs on the CPU"),
                (1, ["--transport", "mpi"], "1 rank has no links to measure")):
            result = subprocess.run([MPIRUN, "-np", str(processes), PROGRAM, "calibrate", "--kernel", "cpu-flash", *arguments,
                                     "--out", str(out)], capture_output=True, text=True, timeout=1200)
            self.assertNotEqual(result.returncode, 0, arguments)
            self.assertIn(message, result.stderr)
            self.assertFalse(out.exists())

    def test_without_mpirun_the_reason_says_how_to_start_it(self):
        result = subprocess.run([PROGRAM, "run", "--strategy", "balanced", "--ranks", "2", "--transport", "mpi", *DOCUMENTS,
                                 *QUICK, "--out", self.folder], capture_output=True, text=True, timeout=1200)
        self.assertEqual(result.returncode, 1, result.stderr)  # nothing was measured
        self.assertEqual(cases_in(self.folder)[0]["reason"], "ranks over MPI are processes; start them with mpirun -n 2 longspan run ...")

    def fails(self, how, *arguments):
        """The first case succeeds, a later one fails: one of the three ranks fails as `how` says."""
        result = mpirun(3, "--strategy", "ring-p2p", "--ranks", "3", "--transport", "mpi", "--direction", "fwd", "--out",
                        self.folder, *arguments, strange=1, how=f"{how}:{self.folder}")
        self.assertNotEqual(result.returncode, 0)
        self.assertTrue((Path(self.folder) / "results.jsonl").exists(), result.stderr)
        cases = cases_in(self.folder)
        statuses = [case["status"] for case in cases]
        self.assertEqual((statuses[0], statuses[-1], statuses.count("failed")), ("ok", "failed", 1), result.stderr)
        return cases[-1]["reason"], result.stderr

    LONG = ["--mask", "causal", "--seqlen", "600,700,800", *SMALL, "--half-width", "0.00001", "--max-samples", "1000000"]

    def test_a_rank_that_dies_ends_the_run_with_the_reason(self):
        reason, _ = self.fails("kill", *self.LONG, "--budget-s", "3")
        self.assertEqual(reason, "rank 1 has died")

    def test_a_rank_that_hangs_ends_the_run_with_the_reason(self):
        reason, _ = self.fails("stop", *self.LONG, "--budget-s", "3", "--timeout-s", "15")
        self.assertIn("hung: not finished within the time limit of 15 s in ", reason)

    def test_a_rank_that_lacks_memory_ends_the_run_with_the_reason(self):
        reason, log = self.fails("limit", "--mask", "sliding_window_causal", "--window", "64,0", "--seqlen", "700,600K,900",
                                 *QUICK)
        self.assertRegex(reason, "rank 1: .*memory")
        self.assertIn("1 cases left", log)


def be_strange(how, command):
    what, folder = how.split(":", 1)
    child = subprocess.Popen(command)
    results = Path(folder) / "results.jsonl"
    size = 0  # of its memory, before the first case's line: the second case may be running when that is seen
    while not (results.exists() and '"type":"case"' in results.read_text()):
        if child.poll() is not None:
            return child.returncode
        size = int(Path(f"/proc/{child.pid}/statm").read_text().split()[0]) * resource.getpagesize()
        time.sleep(0.01)
    if what == "limit":  # 250 MiB more than it had: too little for the second case's tensors
        resource.prlimit(child.pid, resource.RLIMIT_AS, (size + (250 << 20),) * 2)
    else:
        time.sleep(1)
        child.send_signal(signal.SIGKILL if what == "kill" else signal.SIGSTOP)
    status = child.wait()
    if what == "kill":
        time.sleep(60)  # mpirun ends this process
    return abs(status)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--strange"]:
        sys.exit(be_strange(sys.argv[2], sys.argv[3:]))
    unittest.main()
