#!/usr/bin/env python3
"""Tries to break the program, and prints what was tried and what failed.

    torture.py PROGRAM [--seconds N] [--attempts N] [--seed S] [CATEGORY...]

A category is a file of this folder with a function `attempts(t)`: a generator that yields a pair (what was tried, fault)
for each attempt. `fault` is None, or a text that says what went wrong. The categories run side by side, one a core, and
share the time. The same seed gives the same attempts. Exit code: 0 if nothing failed, else 1.
"""

import argparse
import importlib
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
WATCHDOG_S = 120
# Tabs and newlines may be in a message; nothing else that moves the cursor or reorders the text.
RAW_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class Torture:
    """What a category works with."""

    def __init__(self, program, folder, seed):
        self.program = str(Path(program).resolve())
        self.folder = Path(folder)
        self.random = random.Random(seed)

    def run(self, *arguments, **keywords):
        """Runs the program in the category's folder. The result has no stdout or stderr where they are redirected."""
        keywords = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True,
                    "errors": "backslashreplace", "timeout": WATCHDOG_S, "cwd": self.folder, **keywords}
        if "input" in keywords:
            del keywords["stdin"]
        return subprocess.run([self.program, *map(str, arguments)], **keywords)

    @staticmethod
    def fault(result, allowed=(0, 1, 2)):
        """None, or what is wrong with how a run of the program ended."""
        if result.returncode < 0:
            return f"killed by signal {-result.returncode}"
        if result.returncode not in allowed:
            return f"exit code {result.returncode}, expected one of {allowed}"
        if result.stderr is None:
            return None
        if result.returncode != 0 and not result.stderr.strip():
            return f"exit code {result.returncode} without a message"
        if result.returncode == 2 and result.stderr.count("\n") != 1:
            return f"exit code 2 with {result.stderr.count(chr(10))} lines: {result.stderr[:400]}"
        if RAW_CONTROL.search(result.stderr):
            return f"a raw control character in the message: {result.stderr[:400]!r}"
        return None


def categories():
    return sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in ("torture", "torture_test"))


class Tally:
    def __init__(self):
        self.tried = 0
        self.faults = []


def torture(name, program, seed, seconds, most):
    """Runs one category until it ends, its time is over, or `most` attempts are made."""
    tally = Tally()
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix=f"torture-{name}-") as folder:
        t = Torture(program, folder, f"{seed} {name}")
        try:
            for what, fault in importlib.import_module(name).attempts(t):
                tally.tried += 1
                if fault:
                    tally.faults.append(f"{what}: {fault}")
                if tally.tried >= most or time.monotonic() >= end:
                    break
        except subprocess.TimeoutExpired as expired:
            tally.tried += 1
            tally.faults.append(f"{expired.cmd}: no end within {expired.timeout:.0f} s")
    return tally


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("category", nargs="*", help="default: all")
    parser.add_argument("--seconds", type=float, default=600, help="for all categories together")
    parser.add_argument("--attempts", type=float, default=float("inf"), help="the most of each category")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_intermixed_args()
    known = categories()
    names = arguments.category or known
    for name in names:
        if name not in known:
            parser.error(f"unknown category '{name}'; the categories are {', '.join(known)}")

    sys.path.insert(0, str(FOLDER))
    workers = os.cpu_count() or 1
    share_s = arguments.seconds * min(workers, len(names)) / len(names)
    print(f"seed {arguments.seed}; {len(names)} categories, {share_s:.0f} s each", flush=True)
    with ThreadPoolExecutor(workers) as pool:
        tallies = {name: pool.submit(torture, name, arguments.program, arguments.seed, share_s, arguments.attempts)
                   for name in names}
    print(f"\n{'category':<16}{'tried':>8}{'failed':>8}  what is tried")
    failed = 0
    for name, future in tallies.items():
        tally = future.result()
        failed += len(tally.faults)
        print(f"{name:<16}{tally.tried:>8}{len(tally.faults):>8}  {importlib.import_module(name).__doc__.splitlines()[0]}")
    for name, future in tallies.items():
        for fault in future.result().faults:
            print(f"\n{name}: {fault}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
