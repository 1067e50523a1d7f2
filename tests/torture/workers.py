"""peers' workers that lie, babble, hang up and die at random: each may fail its case, and nothing else"""

import json
import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PEERS, TESTS = ROOT / "peers", ROOT / "tests" / "unit" / "peers"
sys.path.insert(0, str(TESTS))
import hostile_peer

LENGTHS = (16, 17, 18)

# Run by the worker: spoils some answers, the same ones for the same seed and length.
SPOIL = """
import json, os, random, time, hostile_peer

VALUES = [None, True, "", "fast", "x" * 100000, "\\x1b[2J\\u202e\\n", [], {}, [[[[[[[[[[0]]]]]]]]]], 0, -1, 1.5, 1e-300, 1e300,
          -1e-3, 1 << 62, -(1 << 63), 1 << 64, 10**40, float("nan"), float("inf"), [0.0], [-1.0], [1e-300], [3600.0],
          [1e-4] * 100000, [float("nan")], ["a"], [None], {"a": "b"}, {"a": 1}, {str(i): "1" for i in range(1000)}]

def bent(rng, answer):
    fields = sorted(answer) + ["ok", "kind", "reason", "times_s", "settings", "drift_keys", "unheard_of"]
    changed = dict(answer)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        field = rng.choice(fields)
        if rng.random() < 0.2:
            changed.pop(field, None)
        else:
            changed[field] = rng.choice(VALUES)
    return changed

def broken(rng, answer):
    line = bytearray(json.dumps(answer).encode() + b"\\n")
    how = rng.randrange(9)
    if how == 0:
        for _ in range(rng.choice((1, 2, 10))):
            line[rng.randrange(len(line))] = rng.randrange(256)
        if b"\\n" not in line:
            line += b"\\n"
    elif how == 1:
        line = line[:rng.randrange(len(line))] + b"\\n"
    elif how == 2:
        line = line * rng.choice((2, 100))
    elif how == 3:
        line = bytes(rng.randrange(256) for _ in range(rng.choice((1, 100, 10000)))) + b"\\n"
    elif how == 4:
        line = rng.choice((b"[", b'{"a":', b'{"ok":[')) * rng.choice((10, 1000000)) + b"\\n"
    elif how == 5:
        line = line.replace(b'"ok": true', b'"ok": true, "ok": true, "times_s": [1e-3]')
    elif how == 6:
        hostile_peer.write(bytes(line[:len(line) // 2]))
        os._exit(rng.choice((0, 1, 139)))
    elif how == 7:
        os.close(3)
        time.sleep(3600)
    else:
        line = b" " * (17 << 20) + line
    return bytes(line)

def spoil(worker, request, answer):
    length = getattr(worker, "length", 0)
    if getattr(worker, "drawn_for", None) != length:
        worker.drawn_for, worker.rng = length, random.Random(f"{SEED} {length}")
    rng = worker.rng
    if rng.random() > 0.12:
        return answer
    return bent(rng, answer) if rng.random() < 0.5 else broken(rng, answer)

hostile_peer.serve(spoil)
"""


def peers_folder(t, seed):
    folder = t.folder / "peers"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    shutil.copy(TESTS / "fake.py", folder)  # the program reads its description there
    return hostile_peer.folder_with(folder, PEERS, f"SEED = {seed}" + SPOIL)


def wrong_with(case):
    """What cannot be true of a line of a case, or None."""
    if case["status"] == "failed":
        reason = case["reason"]
        return None if reason and len(reason) < 1000 and "\n" not in reason else f"the reason {reason!r}"
    if case["status"] == "skipped":  # a worker may say so
        return None
    times = case["measurements"][0]["samples_s"]
    if not all(0 < time_s < case["elapsed_s"] for time_s in times) or sum(times) > case["elapsed_s"]:
        return f"samples of {times} in a case of {case['elapsed_s']} s"
    if case["accuracy"]["counting"] != "pass":
        return "ok, but not counted"
    return None


def attempts(t):
    while True:
        seed = t.random.randrange(1 << 32)
        out = t.folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        environment = os.environ | {"LONGSPAN_PEERS": peers_folder(t, seed), "LONGSPAN_PYTHON": sys.executable,
                                    "PYTHONDONTWRITEBYTECODE": "1"}
        result = t.run("run", "--kernel", "fake", "--mask", "causal", "--seqlen", ",".join(map(str, LENGTHS)), "--heads",
                       "2:1", "--head-dim", "8", "--warmup-s", "0", "--min-samples", "6", "--max-samples", "6", "--timeout-s",
                       "20", "--out", out, env=environment)
        fault = t.fault(result, allowed=(0, 1))
        if fault is None:
            lines = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
            cases = [line for line in lines if line["type"] == "case"]
            lengths = [case["case"]["seqlen"] for case in cases]
            fault = next(filter(None, map(wrong_with, cases)), None)
            if lengths != list(LENGTHS):
                fault = f"the file has the cases {lengths}"
        yield f"workers of seed {seed}", fault
