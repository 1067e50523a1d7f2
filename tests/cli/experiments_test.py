"""The experiments of arXiv 2510.17896: their suites list their cases anywhere, run small without a GPU, and have a page each."""

import json
import os
import tempfile
import unittest
from pathlib import Path

import program

QUICK = ("--warmup-s", "0", "--min-samples", "6", "--max-samples", "6", "--budget-s", "0.01")


class Experiments(unittest.TestCase):
    def test_suites_list_their_cases_on_any_machine(self):
        for number, kernels in ((1, ("fa3", "torch-math", "torch-cudnn")), (2, ("sm90",)), (3, ("vsa", "flash-infer", "sm90"))):
            listed = program.run("run", f"paper-{number}", "--dry-run")
            self.assertEqual(listed.returncode, 0, listed.stderr)
            for kernel in kernels:
                self.assertIn(f"--kernel {kernel} ", listed.stdout)
        ranks = {word for line in program.run("run", "paper-2", "--dry-run").stdout.splitlines()
                 for name, word in zip(line.split(), line.split()[1:]) if name == "--ranks"}
        self.assertLessEqual({"8", "16", "32", "64", "96"}, ranks)

    def test_each_runs_small_on_the_cpu_and_writes_its_page(self):
        small = {1: "kernel=cpu-* seqlen=512", 2: "kernel=cpu-flash seqlen=1K mask=causal_document",
                 3: "kernel=cpu-flash seqlen=1K heads_q=2"}
        with tempfile.TemporaryDirectory(prefix="longspan-paper-") as folder:
            for number, cases in small.items():
                out, page = os.path.join(folder, str(number)), os.path.join(folder, f"{number}.html")
                # Without a GPU 'all' means the kernels of the CPU.
                done = program.run("run", f"paper-{number}", "--filter", cases, "--out", out, *QUICK, env={"CUDA_VISIBLE_DEVICES": ""})
                self.assertEqual(done.returncode, 0, done.stderr)
                table = program.run("report", "--experiment", str(number), out)
                self.assertEqual(table.returncode, 0, table.stderr)
                self.assertIn("arXiv 2510.17896", table.stdout)
                # Small cases on a CPU say nothing about the paper's.
                self.assertNotIn("\nagrees", table.stdout)
                self.assertNotIn("\ndoes not agree", table.stdout)
                written = program.run("report", "--experiment", str(number), out, "-o", page)
                self.assertEqual(written.returncode, 0, written.stderr)
                self.assertIn('"experiment":{"title"', Path(page).read_text(encoding="utf-8"))

    def test_a_kernel_that_the_machine_lacks_is_skipped(self):
        with tempfile.TemporaryDirectory(prefix="longspan-paper-") as folder:
            suite, out = Path(folder, "mine.toml"), os.path.join(folder, "out")
            suite.write_text('[[case]]\nkernel = ["sm90", "cpu-flash"]\nmask = "full"\nseqlen = 64\nheads = "1:1"\nhead_dim = 64\ndtype = "bf16"\n')
            done = program.run("run", str(suite), "--out", out, *QUICK, env={"CUDA_VISIBLE_DEVICES": ""})
            self.assertEqual(done.returncode, 0, done.stderr)
            lines = [json.loads(line) for line in Path(out, "results.jsonl").read_text(encoding="utf-8").splitlines()]
            found = {line["case"]["kernel"]: line for line in lines if line["type"] == "case"}
            self.assertEqual(found["cpu-flash"]["status"], "ok")
            self.assertEqual(found["sm90"]["status"], "skipped")
            self.assertRegex(found["sm90"]["reason"], "is not in this build|needs a CUDA device")

    def test_a_wrong_number_is_one_line(self):
        wrong = program.run("report", "--experiment", "4", "nowhere")
        self.assertEqual((wrong.returncode, wrong.stdout), (2, ""))
        self.assertEqual(wrong.stderr.count("\n"), 1)
        self.assertIn("must be 1, 2 or 3", wrong.stderr)


if __name__ == "__main__":
    unittest.main()
