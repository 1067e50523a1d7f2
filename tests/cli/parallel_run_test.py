"""Strategies run and measured on thread ranks: the results of each rank, and their consistency."""

import json
import tempfile
import unittest
from pathlib import Path

from program import run

SPLIT = ["compute_s", "exposed_s", "reorder_s", "merge_s"]


def measure(*arguments):
    with tempfile.TemporaryDirectory() as folder:
        result = run("run", "--out", folder, "--warmup-s", "0.001", "--min-samples", "6", "--budget-s", "0.02", *arguments)
        lines = [json.loads(line) for line in (Path(folder) / "results.jsonl").read_text().splitlines()]
        report = run("report", folder, "-o", str(Path(folder) / "page.html"))
        page = (Path(folder) / "page.html").read_text() if report.returncode == 0 else report.stderr
    return result, [line for line in lines if line["type"] == "case"], page


class ParallelRunTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.result, cls.cases, cls.page = measure("--strategy", "all", "--ranks", "3,4", "--kernel", "cpu-flash",
                                                  "--mask", "causal_document", "--lengths", "uniform:40:90",
                                                  "--seqlen", "700", "--heads", "8:4", "--head-dim", "16",
                                                  "--direction", "fwd,bwd", "--masks", "2")

    def test_every_case_is_measured_and_verified(self):
        self.assertEqual(self.result.returncode, 0, self.result.stderr)
        self.assertEqual(len(self.cases), 6 * 2 * 2)
        for case in self.cases:
            with self.subTest(case["command"]):
                self.assertEqual(case["status"], "ok", case.get("reason"))
                self.assertEqual(case["accuracy"]["counting"], "pass")
                self.assertEqual(len(case["measurements"]), 2)

    def test_counted_bytes_are_the_predicted_ones(self):
        for case in self.cases:
            with self.subTest(case["command"]):
                p = case["parallel"]
                self.assertEqual(p["sent_bytes"], p["predicted_bytes"])
                self.assertGreater(sum(p["sent_bytes"]), 0)

    def test_copies_take_the_planned_memory(self):
        _, cases, _ = measure("--strategy", "all", "--ranks", "4", "--kernel", "cpu-flash", "--mask", "causal", "--seqlen",
                              "1K", "--heads", "8:4", "--head-dim", "64", "--direction", "fwd,bwd")
        for case in cases:
            with self.subTest(case["command"]):
                p = case["parallel"]
                for held, planned in zip(p["held_bytes"], p["planned_held_bytes"]):
                    self.assertLessEqual(held, planned)
                for counted, planned in zip(p["peak_copy_bytes"], p["plan"]["peak_copy_bytes"]):
                    # lse comes with o, and buffers are rounded up to 256 bytes.
                    self.assertLessEqual(planned, counted)
                    self.assertLess(counted, 1.05 * planned + 4096)

    def test_ranks_share_the_work_and_report_their_time_breakdown(self):
        for case in self.cases:
            with self.subTest(case["command"]):
                p = case["parallel"]
                ranks = case["case"]["ranks"]
                self.assertEqual(p["ranks"], ranks)
                self.assertAlmostEqual(sum(p["area"]), case["area"], delta=1e-6 * case["area"])
                self.assertGreaterEqual(p["imbalance"], 1)
                self.assertTrue(0 <= p["spread"] <= 1)
                for key in [*SPLIT, "rank_time_s"]:
                    self.assertEqual(len(p[key]), ranks)
                for rank in range(ranks):
                    self.assertGreater(p["compute_s"][rank], 0)
                self.assertEqual(len(p["plan"]["by_round"]), p["rounds"])

    def test_errors_stay_near_those_of_a_single_device(self):
        for case in self.cases:
            with self.subTest(case["command"]):
                p = case["parallel"]
                for tensor, error in p["difference"].items():
                    self.assertLess(error, 1e-5, tensor)
                for tensor, single in p["single_error"].items():
                    self.assertLess(case["accuracy"]["max_error"][tensor], 2.5 * single + 1e-6, tensor)

    def test_repeating_a_case_by_its_command_gives_the_same_case(self):
        case = next(c for c in self.cases if c["case"]["strategy"] == "usp" and c["case"]["ranks"] == 4)
        words = case["command"].split()
        self.assertEqual(words[:2], ["longspan", "run"])
        listed = run(*words[1:], "--dry-run")
        self.assertEqual(listed.returncode, 0, listed.stderr)
        self.assertIn(case["id"], listed.stdout)

    def test_the_page_has_the_plan(self):
        self.assertTrue('"plan":[{' in self.page)

    def test_unsupported_cases_are_skipped_with_the_reason(self):
        result, cases, _ = measure("--strategy", "ulysses,usp", "--ranks", "6", "--ulysses", "4", "--kernel", "cpu-flash",
                                   "--mask", "causal", "--seqlen", "200", "--heads", "4:4", "--head-dim", "16")
        self.assertEqual(result.returncode, 1, result.stderr)  # nothing was measured
        reasons = {case["case"]["strategy"]: case["reason"] for case in cases}
        self.assertIn("6 ranks, 4 heads", reasons["ulysses"])
        self.assertIn("degree 4 does not divide the 6 ranks", reasons["usp"])


if __name__ == "__main__":
    unittest.main()
