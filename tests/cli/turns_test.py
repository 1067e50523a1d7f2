"""`tools/turns`: builds of the program compared in turns."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TURNS = Path(__file__).parents[2] / "tools" / "turns"
SUITE = """
[rule]
warmup_s = 0.001
min_samples = 6
min_time_s = 0.001
budget_s = 0.01
[[case]]
kernel = "{}"
mask = ["causal", "sliding_window"]
seqlen = 64
heads = "2:1"
head_dim = 64
dtype = "f32"
direction = "forward"
"""


class TurnsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.program = os.environ["LONGSPAN_PROGRAM"]

    def tearDown(self):
        self.folder.cleanup()

    def turns(self, *builds, kernel="cpu-flash", more=()):
        suite = Path(self.folder.name) / "suite.toml"
        suite.write_text(SUITE.format(kernel))
        out = Path(self.folder.name) / "out"
        return subprocess.run([sys.executable, TURNS, suite, *builds, "--out", out, *more], capture_output=True, text=True, timeout=600)

    def test_every_case_has_a_rate_and_a_ratio(self):
        result = self.turns(f"one={self.program}", f"two={self.program}", more=("--rounds", "2"))
        self.assertEqual(result.returncode, 0, result.stderr)
        head, *lines = result.stdout.splitlines()
        self.assertEqual(head.split(), ["case", "one", "two"])
        self.assertEqual(len(lines), 2)
        for line in lines:
            rate, ratio = map(float, line.split()[-2:])
            self.assertGreater(rate, 0)
            self.assertGreater(ratio, 0)
        self.assertEqual(sorted(p.name for p in (Path(self.folder.name) / "out").iterdir()), ["one-0", "one-1", "two-0", "two-1"])

    def test_cases_that_a_build_cannot_measure_are_told(self):
        result = self.turns(f"one={self.program}", f"two={self.program}", kernel="sm90", more=("--rounds", "1"))  # takes no f32
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual([line.split()[-2:] for line in result.stdout.splitlines()[1:]], [["-", "-"]] * 2)

    def test_builds_need_names_and_programs(self):
        for builds in ((f"one={self.program}",), (f"one={self.program}", f"one={self.program}"), ("one=nothing", f"two={self.program}")):
            result = self.turns(*builds)
            self.assertEqual(result.returncode, 2, builds)
            self.assertIn("turns", result.stderr)


if __name__ == "__main__":
    unittest.main()
