#!/usr/bin/env python3
"""A suite completes, with reasons, although peers are killed, hang, run out of memory or fail otherwise.

usage: suite_test.py PROGRAM PEERS    (bench_test_program, which has the peer `fake` of this folder; peers/ of the sources)
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
LENGTHS = {name: 41 + i for i, name in enumerate(
    ["killed", "hung", "memory", "crash", "refused", "wrong", "raises", "exits", "babbles", "refused late"])}


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Suite(unittest.TestCase):
    def run_cases(self, lengths, *more, python=sys.executable, status=None, mask="causal", **environment):
        """The lines of cases by length, and the run's error output."""
        with tempfile.TemporaryDirectory() as folder:
            words = [PROGRAM, "run", "--kernel", "fake", "--mask", mask, "--seqlen", ",".join(map(str, lengths)),
                     "--heads", "2:1", "--head-dim", "8", "--warmup-s", "0", "--min-samples", "6", "--max-samples", "6",
                     "--out", folder, *more]
            environment = {"LONGSPAN_PEERS": PEERS, "LONGSPAN_PYTHON": python, "LONGSPAN_PYTHONPATH": str(HERE),
                           "PYTHONDONTWRITEBYTECODE": "1", **environment}
            done = subprocess.run(words, capture_output=True, text=True, timeout=1200, env=os.environ | environment)
            if status is not None:
                self.assertEqual(done.returncode, status, done.stderr)
            with open(os.path.join(folder, "results.jsonl")) as file:
                lines = [json.loads(line) for line in file]
        cases = {line["case"]["seqlen"]: line for line in lines if line["type"] == "case"}
        self.assertEqual(list(cases), list(lengths), done.stderr)
        return cases

    def pid(self, case):
        return int(case["settings"].split()[1])

    def test_a_worker_serves_one_case_after_the_other(self):
        cases = self.run_cases([32, 33, LENGTHS["refused"], LENGTHS["refused late"], 34], status=0)
        pids = {self.pid(cases[n]) for n in (32, 33, 34)}
        self.assertEqual(len(pids), 1)
        for name, reason in {"refused": "needs a Tuesday", "refused late": "has no kernel for that, as it turns out"}.items():
            case = cases[LENGTHS[name]]
            self.assertEqual((case["status"], case["reason"]), ("skipped", reason))
        for n in (32, 33, 34):
            self.assertEqual(cases[n]["status"], "ok", cases[n].get("reason"))
            self.assertEqual(cases[n]["versions"], {"fake": "1.0"})
            self.assertEqual(cases[n]["accuracy"]["counting"], "pass")
        self.assertFalse(alive(pids.pop()), "the worker outlived the run")

    def test_sinks_reach_a_peer_that_takes_them(self):
        case = self.run_cases([32], "--sinks", "true")[32]
        self.assertEqual((case["status"], case["reason"]), ("skipped", "takes no attention sinks"))
        case = self.run_cases([32], "--sinks", "true", FAKE_TAKES_SINKS="1", status=0)[32]
        self.assertEqual(case["status"], "ok", case.get("reason"))
        self.assertIs(case["case"]["sinks"], True)
        self.assertIsNone(case["accuracy"]["counting"], "sinks are no keys to count")

    def test_masks_of_many_bands_come_in_a_file(self):
        # About 2700 documents of one or two tokens, causal if there are two. Correct only if all bands arrive.
        for mask in ("full_document", "causal_document"):
            case = self.run_cases([4096], "--lengths", "uniform:1:2", mask=mask, status=0)[4096]
            self.assertEqual(case["status"], "ok", case.get("reason"))
            self.assertGreater(case["measurements"][0]["documents"], 2000)
            self.assertEqual(case["accuracy"]["counting"], "pass")

    def test_each_failure_is_told_and_the_suite_goes_on(self):
        order = []
        for bad in ("killed", "memory", "crash", "wrong", "raises", "exits", "babbles"):
            order += [LENGTHS[bad], 10 + len(order)]  # each bad case is followed by a good one
        cases = self.run_cases(order, status=1)
        pids = []
        for n, case in cases.items():
            if n in LENGTHS.values():
                self.assertEqual(case["status"], "failed", n)
                self.assertNotIn("time_s", case)
            else:
                self.assertEqual(case["status"], "ok", (n, case.get("reason")))
                pids.append(self.pid(case))
        self.assertEqual(len(set(pids)), len(pids), "a worker outlived a case that failed")
        reason = lambda name: cases[LENGTHS[name]]["reason"]
        self.assertIn("killed by signal 9 (Killed)", reason("killed"))
        self.assertIn("out of memory", reason("memory"))
        self.assertIn("7.00 GiB", reason("memory"))
        self.assertIn("killed by signal 11", reason("crash"))
        self.assertIn("wrong result: o", reason("wrong"))
        self.assertIn("the framework lost count in many words", reason("raises"))
        self.assertIn("exited with status 9", reason("exits"))
        self.assertIn("answered 'no json'", reason("babbles"))

    def test_a_hang_ends_at_the_time_limit_with_its_worker(self):
        cases = self.run_cases([32, LENGTHS["hung"], 33], "--timeout-s", "20", status=1)
        self.assertIn("hung", cases[LENGTHS["hung"]]["reason"])
        self.assertEqual(cases[33]["status"], "ok")
        self.assertNotEqual(self.pid(cases[32]), self.pid(cases[33]))
        self.assertFalse(alive(self.pid(cases[32])))

    def test_the_first_interpreter_that_has_the_framework_is_taken(self):
        with tempfile.TemporaryDirectory() as folder:
            poor = os.path.join(folder, "poor")
            with open(poor, "w") as file:
                file.write(f'#!/bin/sh\nLONGSPAN_PYTHONPATH= exec {sys.executable} "$@"\n')
            os.chmod(poor, 0o755)
            cases = self.run_cases([32, 33, 34], python=f"/no/such/python:{poor}:{sys.executable}", status=0)
            self.assertEqual({case["status"] for case in cases.values()}, {"ok"})

    def test_a_framework_that_is_missing_is_looked_for_once(self):
        with tempfile.TemporaryDirectory() as folder:
            poor, log = os.path.join(folder, "poor"), os.path.join(folder, "log")
            with open(poor, "w") as file:
                file.write(f'#!/bin/sh\necho started >> {log}\nLONGSPAN_PYTHONPATH= exec {sys.executable} "$@"\n')
            os.chmod(poor, 0o755)
            cases = self.run_cases([32, 33, 34], python=poor, status=1)
            self.assertEqual({case["reason"] for case in cases.values()}, {"no module fake"})
            self.assertNotIn("always", cases[32])
            with open(log) as file:
                self.assertLessEqual(len(file.readlines()), 2)  # the runner's worker, and that of the first case

    def test_deterministic_needs_a_peer_that_supports_it(self):
        for more, status, code in (((), "ok", 0), (("--deterministic", "true"), "skipped", 1)):
            case = self.run_cases([32], *more, status=code)[32]
            self.assertEqual(case["status"], status, case.get("reason"))
        self.assertEqual(case["reason"], "it is not known to give the same bits on every run")
        case = self.run_cases([32], "--deterministic", "true", status=0, FAKE_HEEDS_DETERMINISTIC="1")[32]
        self.assertEqual((case["status"], case["accuracy"]["same_bits"]), ("ok", True), case.get("reason"))

    def test_a_folder_without_a_worker_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([PROGRAM, "run", "--kernel", "fake", "--mask", "full", "--seqlen", "32", "--out", folder + "/out"],
                                  capture_output=True, text=True, env=os.environ | {"LONGSPAN_PEERS": "/no/such/folder"})
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("LONGSPAN_PEERS='/no/such/folder'", done.stderr)
            self.assertEqual(os.listdir(folder), [])


if __name__ == "__main__":
    PROGRAM, PEERS = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
