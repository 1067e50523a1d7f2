"""What must not pass a gate: cases that were measured before and are not now, results that cannot be read or compared, and
runs that measured nothing. Exit code 1: the answer is no. Exit code 2: there is no answer, for a reason in one line."""

import json
import os
import tempfile
import unittest
from pathlib import Path

from program import run

RUN = {"type": "run", "schema": 1, "run": "1", "started": "2026-01-02T03:04:05Z", "command": "longspan run", "suite": "s",
       "machine": {"cpu_model": "CPU"}, "device": {"kind": "cpu", "name": "CPU"}, "software": {}, "rule": {}, "ceilings": {}}


def case(mask, status="ok", time_s=1.0, **more):
    line = {"type": "case", "schema": 1, "run": "1", "id": mask, "status": status,
            "case": {"kernel": "k", "mask": mask, "seqlen": 1024, "heads_q": 1, "heads_kv": 1, "head_dim": 64, "dtype": "f32",
                     "direction": "forward"}}
    if status == "ok":
        line |= {"time_s": time_s, "interval_s": [0.99 * time_s, 1.01 * time_s]}
    else:
        line["reason"] = "for a reason"
    return line | more


class GateTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def file(self, name, *cases):
        path = self.folder / name
        path.write_text("".join(json.dumps(line) + "\n" for line in (RUN, *cases)))
        return str(path)

    def compare(self, a, b, *more, gate=("--fail-below", "0.9")):
        return run("compare", a, b, *gate, *more)

    def expect_refusal(self, result, *words):
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def test_as_fast_passes_and_slower_does_not(self):
        a = self.file("a", case("full"))
        self.assertEqual(self.compare(a, self.file("b", case("full"))).returncode, 0)
        slower = self.compare(a, self.file("b", case("full", time_s=1.5)))
        self.assertEqual(slower.returncode, 1)
        self.assertIn("below 0.9: k full", slower.stderr)

    def test_without_an_interval_the_ratio_decides(self):
        a = self.file("a", case("full"))
        slower = self.compare(a, self.file("b", case("full", time_s=1.5, interval_s=None)))
        self.assertEqual(slower.returncode, 1)
        self.assertIn("below 0.9: k full", slower.stderr)

    def test_a_case_that_is_not_measured_again_fails(self):
        a = self.file("a", case("full"), case("causal"))
        for b, why in (([], "missing in B"), ([case("causal", "failed")], "failed in B: for a reason"),
                       ([case("causal", "skipped")], "skipped in B: for a reason")):
            with self.subTest(why):
                b = self.file("b", case("full"), *b)
                result = self.compare(a, b)
                self.assertEqual(result.returncode, 1)
                self.assertRegex(result.stderr, f"k causal .*: {why}\n")
                self.assertIn("--allow-missing", result.stderr)
                allowed = self.compare(a, b, "--allow-missing")
                self.assertEqual(allowed.returncode, 0, allowed.stderr)
                self.assertRegex(allowed.stderr, f"k causal .*: {why}\n")
                self.assertEqual(self.compare(a, b, gate=()).returncode, 0)
                why_json = json.loads(self.compare(a, b, "--json", gate=()).stdout)["only_a"][0]["why"]
                self.assertEqual(why_json, why)

    def test_what_a_did_not_measure_does_not_matter(self):
        a = self.file("a", case("full"), case("causal", "failed"))
        self.assertEqual(self.compare(a, self.file("b", case("full"))).returncode, 0)

    def test_comparing_nothing_does_not_pass(self):
        for a, b in ((case("full", "failed"), case("full")), (case("full"), case("full", "skipped"))):
            result = self.compare(self.file("a", a), self.file("b", b), "--allow-missing")
            self.assertEqual(result.returncode, 1)
            self.assertIn("nothing was compared", result.stderr)

    def test_of_one_file_the_last_record_counts(self):
        a = self.file("a", case("full"))
        resumed = self.file("b", case("full", "failed"), case("full"))
        result = self.compare(a, resumed)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertNotIn("warning", result.stdout)
        # Another build that fails where the one before did not, in the same file.
        other = RUN | {"run": "2", "software": {"commit": "2"}}
        broken = self.file("b", case("full"), other, case("full", "failed", run="2"))
        self.assertEqual(self.compare(a, broken).returncode, 1)

    def test_without_cases_there_is_no_answer(self):
        a = self.file("a", case("full"))
        empty = self.folder / "empty"
        empty.write_text("")
        for b in (str(empty), self.file("b")):
            for gate in (("--fail-below", "0.9"), ()):
                self.expect_refusal(self.compare(a, b, gate=gate), "B has no case")
                self.expect_refusal(self.compare(b, a, gate=gate), "A has no case")
        self.expect_refusal(self.compare(a, self.file("b", case("causal"))), "no case in common")

    def test_a_bound_that_is_no_number_above_0_is_refused(self):
        a = self.file("a", case("full"))
        for bound in ("", " ", "nan", "inf", "-inf", "-1", "0", "0x1", "1e999", "0.9x", "0,9"):
            with self.subTest(bound):
                reason = "number" if bound.strip() else "empty"
                self.expect_refusal(self.compare(a, a, gate=("--fail-below", bound)), "--fail-below", reason)
        for option in ("--tolerance", "--confidence"):
            for value in ("", "nan", "inf", "-1", "2"):
                with self.subTest(option + value):
                    self.expect_refusal(self.compare(a, a, option, value, gate=()), option[2:])
        self.expect_refusal(self.compare(a, a, "--allow-missing", gate=()), "--fail-below")

    def test_what_cannot_be_read_is_named_with_the_reason(self):
        a = self.file("a", case("full"))
        (self.folder / "run" / "results.jsonl").mkdir(parents=True)
        (self.folder / "loop").symlink_to("loop")
        unreadable = [(str(self.folder / "run"), "is a folder"), (str(self.folder / "loop"), "symbolic links"),
                      (str(self.folder / "none"), "no such file")]
        if os.geteuid() != 0:
            closed = self.folder / "closed"
            closed.mkdir()
            closed.chmod(0)
            self.addCleanup(closed.chmod, 0o700)
            unreadable.append((str(closed), "Permission denied"))
        for path, reason in unreadable:
            with self.subTest(path):
                self.expect_refusal(self.compare(a, path), path, reason)
                self.expect_refusal(run("report", path), path, reason)


class NothingMeasuredTest(unittest.TestCase):
    def test_a_run_or_verification_that_skips_everything_fails(self):
        # cpu-flash needs a multiple of 8.
        cases = ["--kernel", "cpu-flash", "--mask", "full", "--seqlen", "16", "--head-dim", "7"]
        with tempfile.TemporaryDirectory() as folder:
            out = ["run", *cases, "--out", folder + "/out"]
            for words in (out, [*out, "--resume"], ["verify", *cases]):
                with self.subTest(words[-1]):
                    result = run(*words)
                    self.assertEqual(result.returncode, 1, result.stderr)
                    self.assertIn("every case was skipped", result.stderr)
                    allowed = run(*words, *(["--resume"] if words == out else []), "--allow-skipped")
                    self.assertEqual(allowed.returncode, 0, allowed.stderr)

    def test_wrong_variables_are_refused_before_anything_is_written(self):
        cases = ["--kernel", "cpu-naive", "--mask", "full", "--seqlen", "16"]
        wrong = [("LONGSPAN_THREADS", value) for value in ("abc", "0", "-1", "4x", " 4", "99999999999")]
        wrong += [("LONGSPAN_PEERS", "/no/such/folder")]
        for name, value in [*wrong, ("LONGSPAN_RENDEZVOUS", "nowhere"), ("LONGSPAN_RENDEZVOUS", "host:0")]:
            with self.subTest(f"{name}={value}"), tempfile.TemporaryDirectory() as folder:
                results = [run("run", *cases, "--out", folder + "/out", env={name: value})]
                if name != "LONGSPAN_RENDEZVOUS":
                    results.append(run("verify", *cases, env={name: value}))
                for result in results:
                    self.assertEqual(result.returncode, 2, result.stderr)
                    self.assertIn(name, result.stderr)
                    self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
                self.assertEqual(os.listdir(folder), [])


if __name__ == "__main__":
    unittest.main()
