"""Runs killed at any moment, with the last line torn, and resumed: every case once, as it was written."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "multi"))
import kill_resume  # noqa: E402


def complete_lines(path):
    """The lines that end in a newline."""
    return [line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")] if path.exists() else []


def attempts(t):
    ids = kill_resume.expected_ids(t.program)
    number = 0
    while True:
        number += 1
        folder = pathlib.Path(t.folder) / f"kill-{number}"
        path = folder / "results.jsonl"
        kept = []
        # One run may be killed several times before it is left to end.
        for again in range(t.random.randint(1, 3)):
            resume = ["--resume"] if path.exists() else []
            after = len(complete_lines(path)) + t.random.randint(0, len(ids) // 2)
            kill_resume.run_and_kill(t.program, folder, after, t.random.uniform(0, 0.4), *resume)
            whole = complete_lines(path)
            lost = [line for line in kept if line not in whole]
            cut = kill_resume.tear_last_line(path, t.random) if t.random.random() < 0.5 else 0
            kept = complete_lines(path)
            what = f"kill {again + 1} of run {number} with {len(whole)} lines, {cut} bytes cut off"
            yield what, f"{len(lost)} lines were lost or altered" if lost else None
        resume = ["--resume"] if path.exists() else []
        result = t.run(*kill_resume.command(t.program, folder, *resume)[1:])
        fault = t.fault(result, allowed=(0,))
        if not fault:
            try:
                kill_resume.check(path, ids)
            except AssertionError as wrong:
                fault = str(wrong)
            if any(line not in complete_lines(path) for line in kept):
                fault = "a line was lost or altered"
        yield f"end of run {number}", fault
