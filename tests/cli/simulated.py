"""What the tests of simulate and advise share: machine files, results, and the records that simulate prints."""

import json
from pathlib import Path

from program import run

ROOT = Path(__file__).parents[2]
H200 = str(ROOT / "data" / "machines" / "h200.json")
NODES = str(ROOT / "data" / "machines" / "hgx-h100.json")
FOUR = str(ROOT / "results" / "nvidia-h200-x4" / "2026-11-26-cp.jsonl")
FOUR_HYBRIDS = str(ROOT / "results" / "nvidia-h200-x4" / "2026-11-26-cp-hybrids.jsonl")
EIGHT = str(ROOT / "results" / "nvidia-h200-x8" / "2026-11-26-cp.jsonl")
EIGHT_LEFT = str(ROOT / "results" / "nvidia-h200-x8" / "2026-11-26-cp-left.jsonl")
STRATEGIES = ["ulysses", "ring-p2p", "ring-allgather", "usp", "loongtrain", "balanced"]
CAUSAL = ["--mask", "causal", "--seqlen", "32K"]


def simulate(*arguments):
    result = run("simulate", *arguments, "--json")
    if result.returncode != 0:
        raise AssertionError(result.stderr)
    return [json.loads(line) for line in result.stdout.splitlines()]
