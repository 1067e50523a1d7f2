#!/usr/bin/env python3
"""A worker that lies, babbles or computes nothing while it is timed fails its one case with a reason, and the run goes on.

usage: hostile_test.py PROGRAM PEERS    (bench_test_program, which has the peer `fake` of this folder; peers/ of the sources)
"""
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest

import hostile_peer


def with_field(op, field, value):
    def spoil(worker, request, answer):
        return answer | {field: value} if request["op"] == op else answer
    return spoil


def with_line(op, data):
    def spoil(worker, request, answer):
        return data if request["op"] == op else answer
    return spoil


def exits_in_mid_answer(worker, request, answer):
    if request["op"] == "time":
        hostile_peer.write(b'{"ok": tr')
        os._exit(3)
    return answer


def hangs_up(worker, request, answer):
    if request["op"] == "time":
        os.close(3)
        time.sleep(3600)
    return answer


def never_ends_its_line(worker, request, answer):
    if request["op"] == "time":
        hostile_peer.write(b" " * (17 << 20))
        time.sleep(3600)
    return answer


def computes_nothing(result):
    """Once it was verified, the forward pass returns result(plan)."""
    def spoil(worker, request, answer):
        if request["op"] == "run":
            plan = worker.plans[request["id"]].plan
            worker.honest = getattr(worker, "honest", 0) + 1
            if worker.honest == 3:  # the first run, one that counts keys, and the one before timing
                plan.forward = lambda q, k, v: result(plan)
        return answer
    return spoil


def zeros(plan):
    return type(plan.o)(plan.o.shape)


TIMES, PLAN, RUN = ("time", "times_s"), ("plan", "plan_s"), ("run", "compile_s")
# (what is spoiled, a part of the reason)
BEHAVIOURS = [
    (with_field(*TIMES, [float("nan")]), "not a JSON object"),
    (with_field(*TIMES, [float("inf")]), "not a JSON object"),
    (with_field(*TIMES, [-1e-3]), "must be above 0"),
    (with_field(*TIMES, [0]), "must be above 0"),
    (with_field(*TIMES, [3600.0]), "had only"),
    (with_field(*TIMES, [1e-300]), "no memory takes"),
    (with_field(*TIMES, [1e-4] * 100000), "no list of 1 to"),
    (with_field(*TIMES, []), "no list of 1 to"),
    (with_field(*TIMES, 0.001), "no list of 1 to"),
    (with_field(*TIMES, ["fast"]), "a JSON string, not a number"),
    (with_field(*TIMES, None), "no list of 1 to"),
    (with_field(*PLAN, 3600.0), "plan_s = 3600 s, but had only"),
    (with_field(*PLAN, -1.0), "cannot be below 0"),
    (with_field(*PLAN, True), "a JSON boolean, not a number"),
    (with_field("plan", "plan_bytes", 1 << 60), "plan_bytes = 1152921504606846976; it must be a whole number"),
    (with_field("plan", "plan_bytes", -1), "plan_bytes = -1; it must be a whole number"),
    (with_field("plan", "plan_bytes", 1.5), "plan_bytes = 1.5; it must be a whole number"),
    (with_field("plan", "drift_keys", 10**30), "drift_keys"),
    (with_field("plan", "settings", [1]), "'settings' that is a JSON array"),
    (with_field(*RUN, 3600.0), "compile_s = 3600 s, but had only"),
    (with_field("run", "peak_bytes", 1e300), "peak_bytes"),
    (with_field("time", "ok", "yes"), "without ok = true or false"),
    (with_line("time", b'{"ok": true}\n'), "without 'times_s'"),
    (with_line("time", b"\x00\xff\x1b[2J\x07\n"), "answered '???[2J?'"),
    (with_line("time", b"\n"), "not a JSON object"),
    (with_line("time", b"[" * 1000000 + b"\n"), "nested too deeply"),
    (with_line("time", b'{"a":' * 100000 + b"\n"), "nested too deeply"),
    (with_line("time", b'{"ok": false, "times_s": [1e-3], "ok": true}\n'), "'ok' comes twice"),
    (with_line("time", b'{"ok": true, "times_s": [1e-3]}\n{"ok": true}\n'), "answered more than it was asked"),
    (with_line("time", json.dumps({"ok": False, "reason": "\x1b[2Jbell\x07\n" + "x" * 1000000}).encode() + b"\n"), "bell"),
    (exits_in_mid_answer, "exited with status 3"),
    (hangs_up, "is gone"),
    (never_ends_its_line, "without an end"),
    (computes_nothing(lambda plan: plan.o), "while it was timed: o"),
    (computes_nothing(zeros), "while it was timed: o"),
]
FIRST = 60  # cases of shorter lengths are honest; some of fake.py above 40 fail in other ways


def spoil(worker, request, answer):
    length = getattr(worker, "length", 0) if request["op"] != "hello" else 0  # a case says hello before its length
    return BEHAVIOURS[length - FIRST][0](worker, request, answer) if length >= FIRST else answer


class Hostile(unittest.TestCase):
    def run_lengths(self, lengths, seconds=600):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(folder + "/peers")
            body = "import hostile_test\nserve(hostile_test.spoil)"
            words = [PROGRAM, "run", "--kernel", "fake", "--mask", "causal", "--seqlen", ",".join(map(str, lengths)),
                     "--heads", "2:1", "--head-dim", "8", "--warmup-s", "0", "--min-samples", "6", "--max-samples", "6",
                     "--timeout-s", "300", "--out", folder + "/out"]
            done = subprocess.run(words, capture_output=True, text=True, timeout=seconds, env=os.environ | {
                "LONGSPAN_PEERS": hostile_peer.folder_with(folder + "/peers", PEERS, body), "LONGSPAN_PYTHON": sys.executable,
                "PYTHONDONTWRITEBYTECODE": "1"})
            with open(folder + "/out/results.jsonl") as file:
                lines = [json.loads(line) for line in file]
        cases = {line["case"]["seqlen"]: line for line in lines if line["type"] == "case"}
        self.assertEqual(list(cases), list(lengths), done.stderr)
        return done.returncode, cases

    def test_each_lie_fails_its_case_and_the_next_one_is_measured(self):
        bad = [FIRST + i for i in range(len(BEHAVIOURS))]
        order = [length for i, liar in enumerate(bad) for length in (liar, 2 + i)]
        code, cases = self.run_lengths(order)
        self.assertEqual(code, 1)
        for length, case in cases.items():
            with self.subTest(length):
                if length < FIRST:
                    self.assertEqual(case["status"], "ok", case.get("reason"))
                    continue
                self.assertEqual(case["status"], "failed")
                self.assertIn(BEHAVIOURS[length - FIRST][1], case["reason"])
                self.assertLess(len(case["reason"]), 700)
                self.assertTrue(case["reason"].isprintable(), case["reason"])
                self.assertNotIn("time_s", case)


if __name__ == "__main__":
    PROGRAM, PEERS = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
