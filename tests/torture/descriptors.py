"""every command with closed or full streams, and small limits of memory, files and descriptors"""

import os
import resource
import subprocess
from pathlib import Path

CASE = ["run", "--kernel", "cpu-flash", "--mask", "causal", "--seqlen", "64", "--heads", "1", "--head-dim", "16",
        "--min-samples", "6", "--max-samples", "6", "--budget-s", "0.01"]
MIB = 1 << 20
# At and below these, the system cannot load the program.
LOADED = {resource.RLIMIT_AS: 130 * MIB, resource.RLIMIT_DATA: 50 * MIB, resource.RLIMIT_NOFILE: 3}
LIMITS = {
    resource.RLIMIT_AS: [m * MIB for m in (1, 20, 60, 100, 130, 200, 260, 280, 300, 400, 600, 1000, 2000)],
    resource.RLIMIT_DATA: [m * MIB for m in (1, 50, 150, 270, 300, 500, 1000)],
    resource.RLIMIT_FSIZE: [0, 1, 100, 1000, 10000],
    resource.RLIMIT_NOFILE: [0, 1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 24, 64],
    resource.RLIMIT_STACK: [m * MIB for m in (1, 2, 8, 64)],
    resource.RLIMIT_CORE: [0],
}


def conditions(t):
    """(what was set, the function for the child, the streams, the limits)."""
    closed = [fd for fd in range(3) if t.random.random() < 0.2]
    limits = [(kind, t.random.choice(values)) for kind, values in sorted(LIMITS.items()) if t.random.random() < 0.25]

    def prepare():
        for fd in closed:
            os.close(fd)
        for kind, value in limits:
            resource.setrlimit(kind, (value, value))

    streams = {name: t.random.choice(["pipe", "pipe", "full", "gone", "file"]) for name in ("stdout", "stderr")}
    return f"closed {closed}, limits {limits}, {streams}", prepare, streams, limits


def stream(t, kind):
    if kind == "pipe":
        return subprocess.PIPE
    if kind == "full":
        return os.open("/dev/full", os.O_WRONLY)
    if kind == "file":
        return os.open(Path(t.folder) / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def attempts(t):
    t.run(*CASE, "--out", "results")
    commands = [
        [], ["--version"], ["--help"], ["run", "--help"], ["list", "masks"], ["list", "devices"], ["list", "kernels"],
        ["mask", "causal", "--seqlen", "1K", "--text"], ["mask", "causal_document", "--seqlen", "8K", "--json"],
        ["mask", "uniform_block_sparse", "--seqlen", "64K"], ["mask", "full", "--seqlen", "1K", "--png", "mask.png"],
        ["plan", "usp", "--ranks", "4", "--mask", "causal", "--seqlen", "1K"], ["report", "results"],
        ["report", "results", "-o", "page.html"], ["compare", "results", "results"], ["run", "quick", "--dry-run"],
        ["verify", "--kernel", "cpu-flash", "--mask", "causal", "--seqlen", "129", "--dtype", "f32"],
        ["verify", "--kernel", "cpu-naive", "--mask", "full", "--seqlen", "1K", "--dtype", "f32"], ["completion", "zsh"], ["frobnicate"]]
    number = 0
    while True:
        number += 1
        words = t.random.choice([*commands, [*CASE, "--out", f"run-{number}"]])
        what, prepare, kinds, limits = conditions(t)
        streams = {name: stream(t, kind) for name, kind in kinds.items()}
        try:
            result = t.run(*words, preexec_fn=prepare, **streams)
        finally:
            for fd in streams.values():
                if fd != subprocess.PIPE:
                    os.close(fd)
        fault = None
        # 126 and 127: the system could not load the program. Its loader may also die of that.
        unloaded = any(value <= LOADED[kind] for kind, value in limits if kind in LOADED)
        if result.returncode not in (0, 1, 2, 126, 127) and not (unloaded and result.returncode < 0):
            fault = f"ended with {result.returncode}: {result.stderr and result.stderr[:300]}"
        yield f"{' '.join(words)} with {what}", fault
