#!/usr/bin/env python3
"""Kills a run at random moments and resumes it: no case may be lost, doubled or malformed.

    kill_resume.py PROGRAM [--rounds N] [--seed S]

Each round starts a run, kills it with SIGKILL at a random moment, cuts a random piece off the last line in
every second round (as a kill in the middle of a write would), and resumes until the run is complete.
"""

import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
import zlib

CASES = ["--kernel", "cpu-flash,cpu-naive", "--mask", "full,causal,causal_document", "--seqlen", "128,256",
         "--heads", "2:1", "--head-dim", "32", "--direction", "fwd,bwd",
         "--warmup-s", "0", "--min-samples", "6", "--max-samples", "6", "--budget-s", "0.1"]


def command(program, folder, *more):
    return [program, "run", *CASES, "--out", str(folder), *more]


def expected_ids(program):
    text = subprocess.run(command(program, "unused", "--dry-run"), check=True, capture_output=True, text=True).stdout
    return [line.split()[0] for line in text.splitlines() if "longspan run" in line]


def children_of(pid):
    try:
        return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def alive(pid):
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"


def line_count(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def run_and_kill(program, folder, after_lines, then_s, *more):
    """Kills a run some time after its file has that many lines. Returns False if the run ended by itself."""
    process = subprocess.Popen(command(program, folder, *more), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and line_count(folder / "results.jsonl") < after_lines:
        time.sleep(0.001)
    try:
        process.wait(then_s)
        return False
    except subprocess.TimeoutExpired:
        pass
    children = children_of(process.pid)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 60
    while any(alive(child) for child in children):
        if time.monotonic() > deadline:
            raise SystemExit(f"the child of the killed run is still alive: {children}")
        time.sleep(0.01)
    return True


def tear_last_line(path, rng):
    if not path.exists() or path.stat().st_size == 0:
        return 0
    last = len(path.read_bytes().splitlines(keepends=True)[-1])
    cut = rng.randint(1, last)
    os.truncate(path, path.stat().st_size - cut)
    return cut


def mean_elapsed(path):
    records = [json.loads(line) for line in path.read_text().splitlines()]
    times = [record["elapsed_s"] for record in records if record["type"] == "case"]
    return sum(times) / len(times)


def sealed(line):
    """A line of results (bytes) with the checksum that it ought to have."""
    text = line[:line.rindex(b',"crc32":"')]
    return text + b',"crc32":"%08x"}' % zlib.crc32(text)


def check(path, ids):
    runs, seen = set(), []
    text = path.read_bytes()
    assert text.endswith(b"\n"), "the file does not end in a newline"
    for number, line in enumerate(text.splitlines(), 1):
        record = json.loads(line)
        assert line == sealed(line), f"line {number}: checksum"
        assert record["schema"] == 1, f"line {number}: schema"
        if record["type"] == "run":
            runs.add(record["run"])
            continue
        assert record["run"] in runs, f"line {number}: its run was not announced before"
        assert record["status"] == "ok", f"line {number}: {record['status']}: {record.get('reason')}"
        assert len(record["measurements"][0]["samples_s"]) >= 1, f"line {number}: no samples"
        seen.append(record["id"])
    assert len(seen) == len(set(seen)), "a case appears twice"
    assert set(seen) == set(ids), f"{len(set(ids) - set(seen))} cases are lost, {len(set(seen) - set(ids))} are foreign"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    print(f"seed {arguments.seed}")
    ids = expected_ids(arguments.program)
    assert len(ids) == 24, f"{len(ids)} cases"

    with tempfile.TemporaryDirectory() as root:
        root = pathlib.Path(root)
        subprocess.run(command(arguments.program, root / "whole"), check=True, capture_output=True)
        check(root / "whole" / "results.jsonl", ids)
        # The kill comes within about one case's time of any line; a tenth of the rounds dies before the
        # first line, during the ceiling measurement.
        case_s = mean_elapsed(root / "whole" / "results.jsonl")
        for number in range(arguments.rounds):
            folder = root / str(number)
            path = folder / "results.jsonl"
            early = rng.random() < 0.1
            after_lines = 0 if early else rng.randint(1, len(ids))
            then_s = rng.uniform(0, 2 if early else 1.5 * case_s)
            killed = run_and_kill(arguments.program, folder, after_lines, then_s)
            lines = line_count(path)
            cut = tear_last_line(path, rng) if number % 2 else 0
            more = ["--resume"] if path.exists() else []
            result = subprocess.run(command(arguments.program, folder, *more), capture_output=True, text=True)
            if result.returncode != 0:
                raise SystemExit(f"round {number}: exit code {result.returncode}: {result.stderr}")
            check(path, ids)
            print(f"round {number}: {'killed' if killed else 'ended'} with {lines} lines in the file, "
                  f"{cut} bytes cut off, resumed: {len(ids)} of {len(ids)} cases, each once")


if __name__ == "__main__":
    sys.exit(main())
