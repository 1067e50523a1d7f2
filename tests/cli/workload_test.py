"""Workloads: drawn, described, measured step by step, resumed and reported."""

import json
import tempfile
import unittest
from pathlib import Path

from program import run

SMALL = ("--tokens", "256", "--steps", "3", "--micro-batches", "2", "--heads", "4:2", "--head-dim", "32", "--dtype", "f32")
QUICK = ("--warmup-s", "0", "--min-samples", "6", "--max-samples", "6", "--budget-s", "0.01")


class WorkloadTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="longspan-workload-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def drawn(self, *arguments):
        path = self.folder / "w.jsonl"
        done = run("workload", *SMALL, *arguments, "-o", str(path))
        self.assertEqual(done.returncode, 0, done.stderr)
        return path

    def refused(self, part, *arguments):
        done = run(*arguments)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(part, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_draws_the_same_file_anywhere(self):
        printed = run("workload", *SMALL, "--lengths", "uniform:20:200", "--seed", "3").stdout
        self.assertEqual(printed, self.drawn("--lengths", "uniform:20:200", "--seed", "3").read_text())
        header, *steps = map(json.loads, printed.splitlines())
        self.assertEqual(header["model"], {"heads_q": 4, "heads_kv": 2, "head_dim": 32, "layers": 1, "dtype": "f32"})
        self.assertEqual([step["micro_batches"] for step in steps][0], [[159, 97], [168, 23, 65]])
        self.assertEqual({sum(batch) for step in steps for batch in step["micro_batches"]}, {256})
        other = run("workload", *SMALL, "--lengths", "uniform:20:200", "--seed", "4").stdout
        self.assertNotEqual(printed.splitlines()[1:], other.splitlines()[1:])

    def test_draws_from_a_file_of_lengths(self):
        lengths = self.folder / "lengths.csv"
        lengths.write_text("# lengths\n30\n70\n90\n")
        path = self.drawn("--lengths", str(lengths), "--packing", "whole", "--mask", "prefix_lm_document", "--prefix", "5")
        steps = [json.loads(line) for line in path.read_text().splitlines()[1:]]
        self.assertEqual({length for step in steps for batch in step["micro_batches"] for length in batch}, {30, 70, 90})
        self.assertEqual(steps[0]["options"], {"prefix": 5})
        described = run("workload", str(path))
        self.assertIn("3 steps, 6 micro-batches", described.stdout)
        self.assertIn("half have at most 70", described.stdout)

    def test_refuses_what_it_cannot_draw(self):
        for part, arguments in (
                ("--packing 'best': must be cut or whole", ("--packing", "best")),
                ("--tokens '0': must be a whole number", ("--tokens", "0")),
                ("--dtype dtype 'f8' is unknown", ("--dtype", "f8")),
                ("--lengths long-mix mixes", ("--lengths", "long-mix")),
                ("has no documents", ("--mask", "causal")),
                ("--prefix does not apply to causal_document", ("--prefix", "5")),
                ("tp 3 must divide", ("--tp", "3")),
                ("a multiple of --dp 3", ("--dp", "3", "--micro-batches", "2")),
                ("more than 100000 micro-batches", ("--steps", "100000", "--micro-batches", "2"))):
            with self.subTest(part):
                self.refused(part, "workload", *arguments)

    def test_replaces_only_a_workload(self):
        other = self.folder / "other"
        other.write_text("mine")
        self.refused("--output", "workload", *SMALL, "-o", str(other))
        self.assertEqual(other.read_text(), "mine")

    def test_measures_every_step_resumes_and_reports(self):
        path, out = self.drawn("--lengths", "uniform:20:200", "--layers", "3"), self.folder / "out"
        command = ("run", "--workload", str(path), "--kernel", "cpu-flash", "--strategy", "ring-p2p,balanced", "--ranks", "2",
                   "--out", str(out), *QUICK)
        listed = run(*command, "--dry-run").stdout
        self.assertIn("24 cases", listed)  # 6 micro-batches, 2 strategies, 2 passes
        part = run(*command, "--filter", "strategy=balanced")
        self.assertEqual(part.returncode, 0, part.stderr)
        self.assertIn("balanced, 2 ranks, cpu-flash", part.stdout)
        self.assertNotIn("ring-p2p", part.stdout)
        halves = self.folder / "halves"
        half = run(*command[:-len(QUICK) - 1], str(halves), *QUICK, "--filter", "strategy=balanced direction=forward")
        self.assertEqual(half.returncode, 0, half.stderr)
        self.assertIn("0/3", half.stdout)  # a step is both passes
        whole = run(*command, "--resume")
        self.assertEqual(whole.returncode, 0, whole.stderr)
        self.assertIn("12 measured, 0 skipped, 0 failed, 12 measured before", whole.stderr)
        lines = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
        cases = {line["id"]: line for line in lines if line["type"] == "case"}
        self.assertEqual(len(cases), 24)
        for line in cases.values():
            self.assertEqual(line["accuracy"]["counting"], "pass")
        workloads = [line for line in lines if line["type"] == "workload"]
        self.assertEqual({line["layers"] for line in workloads}, {3})
        table = run("report", str(out)).stdout
        [heading] = [line for line in table.splitlines() if line.startswith("Workload ")]
        self.assertIn("3 steps, 3 layers", heading)
        rows = {line.split(",")[0]: line.split() for line in table.splitlines() if ", 2 ranks, cpu-flash" in line}
        self.assertEqual(set(rows), {"ring-p2p", "balanced"})
        self.assertEqual({row[-1] for row in rows.values()}, {"3/3"})
        page = self.folder / "page.html"
        self.assertEqual(run("report", str(out), "-o", str(page)).returncode, 0)
        self.assertIn("ring-p2p, 2 ranks, cpu-flash", page.read_text())
        # The case of a micro-batch stands alone, too: its command measures the same.
        one = next(line for line in cases.values() if line["case"]["direction"] == "forward")
        again = run(*one["command"].split()[1:], "--dry-run").stdout
        self.assertEqual(again.split()[0], one["id"])

    def test_refuses_axes_that_the_workload_fixes(self):
        path = str(self.drawn("--lengths", "uniform:20:200"))
        for option, value in (("--mask", "full"), ("--seqlen", "1K"), ("--lengths", "pile"), ("--heads", "4"), ("--direction", "forward")):
            self.refused(f"{option} cannot be combined with --workload", "run", "--workload", path, option, value)
        self.refused("cannot be combined with a suite", "run", "quick", "--workload", path)
        one = str(self.drawn("--cp", "1"))
        self.refused("--strategy needs --ranks", "run", "--workload", one, "--strategy", "ring-p2p")
        broken = self.folder / "broken.jsonl"
        broken.write_text(Path(path).read_text() + '{"mask":"causal_document"}\n')
        self.refused("broken.jsonl:5: 'micro_batches' is missing", "run", "--workload", str(broken))


if __name__ == "__main__":
    unittest.main()
