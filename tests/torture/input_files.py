"""mutated masks, suites, workloads and lengths, and files that are devices, folders, pipes, deeply nested or huge"""

import json
import os
from pathlib import Path

SUITE = """name = "torture"
description = "a suite"
[rule]
min_samples = 8
[defaults]
seqlen = ["1K", 2048]
[[case]]
kernel = ["cpu-flash"]
mask = ["causal", "uniform_block_sparse"]
density = 0.5
heads = ["4:2", 4]
direction = ["forward"]
"""
LENGTHS = "begin,end,weight\n1,100,0.5\n101,2000,2\n"
LIST = "# lengths\n512\n256\n1024\n"
PIECES = ["[", "]", "{", "}", '"', "'", ",", ":", "=", "\n", "\r", "\0", "#", ".", "-", "e", "null", "true", "1e999", "-1", "nan", "inf",
          "9223372036854775808", "\x1b[2J", "\u202e", "\ufeff", "\\u0000", '"""', "'''", "[[case]]", "\x7f", "\udcff", "é"]
NESTS = [("[", "]"), ('{"a":', "}"), ("a=[", ""), ("a={a=", ""), ("a.", "a=1"), ("[a.", "a]"), ("[[", "]]"), ('"a".', "a=1")]


def seeds(t):
    mask = t.run("mask", "causal_document", "--seqlen", "1K", "--lengths", "uniform:50:300", "--json").stdout
    blocks = t.run("mask", "uniform_block_sparse", "--seqlen", "512", "--kv-heads", "2", "--json").stdout
    hand = json.dumps({"rows": 4, "columns": 9, "bands": [[0, 4, 2, 5]]})
    workload = t.run("workload", "--lengths", "uniform:50:300", "--tokens", "1K", "--steps", "2", "--micro-batches", "2").stdout
    return {"json": [mask, blocks, hand], "toml": [SUITE], "csv": [LENGTHS, LIST], "jsonl": [workload]}


def mutated(t, text):
    for _ in range(t.random.choice([1, 1, 2, 3, 8])):
        at, end = t.random.randint(0, len(text)), t.random.randint(0, len(text))
        how = t.random.randrange(6)
        if how == 0:
            text = text[:at]
        elif how == 1:
            text = text[:at] + t.random.choice(PIECES) + text[at:]
        elif how == 2:
            text = text[:at] + text[at + t.random.randint(1, 5):]
        elif how == 3:
            text = text[:at] + chr(t.random.randrange(256)) + text[at + 1:]
        elif how == 4:
            text += text[min(at, end):max(at, end)]
        else:
            text = text[:at] + t.random.choice(PIECES) * t.random.choice([2, 100, 20000]) + text[at:]
    return text


def nested(t):
    opening, closing = t.random.choice(NESTS)
    depth = t.random.choice([10, 63, 64, 65, 255, 256, 257, 5000, 30000, 200000])
    return opening * depth + (closing * depth if t.random.random() < 0.5 else "")


def unusual(t, path):
    """Puts something at the path that is no text file, and says what."""
    kind = t.random.choice(["device", "folder", "pipe", "large", "loop", "nothing"])
    if kind == "device":
        os.symlink("/dev/" + t.random.choice(["zero", "full", "null", "random", "tty", "mem"]), path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "large":
        with open(path, "wb") as file:
            file.truncate(t.random.choice([1 << 31, 1 << 40]))
    elif kind == "loop":
        os.symlink(path, path)
    return kind


def attempts(t):
    texts = seeds(t)
    kinds = {"json": lambda p: ["mask", p], "toml": lambda p: ["run", p, "--dry-run"],
             "csv": lambda p: ["mask", "full_document", "--seqlen", "1K", "--lengths", p],
             "jsonl": lambda p: ["workload", p]}
    path = None
    while True:
        kind = t.random.choice(sorted(kinds))
        path = Path(t.folder) / f"file.{kind}"
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        elif path.is_symlink() or path.exists():
            path.unlink()
        how = t.random.random()
        if how < 0.1:
            what = unusual(t, path)
        else:
            text = nested(t) if how < 0.2 else mutated(t, t.random.choice(texts[kind]))
            path.write_bytes(text.encode("utf-8", "surrogateescape" if how < 0.6 else "replace"))
            what = f"{kind} {text[:300]!r} of {len(text)} characters"
        result = t.run(*kinds[kind](str(path)))
        fault = t.fault(result)
        if "internal error" in result.stderr or result.returncode == 1:
            fault = f"exit code {result.returncode}: {result.stderr[:300]}"
        if fault is None and what in ("device", "folder", "pipe", "large", "loop", "nothing") and result.returncode != 2:
            fault = f"exit code {result.returncode}, expected 2"
        yield f"{kind}: {what}", fault
