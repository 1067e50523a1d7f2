"""Every wrong command, option, value and file gives one line that says what was wrong and what is allowed, on
standard error, nothing on standard output, and exit code 2."""

import tempfile
import unittest
from pathlib import Path

from program import run

COMMANDS = ["mask", "plan", "verify", "run", "report", "compare", "list", "completion"]

# (arguments, parts of the line). {folder} is a folder that contains FILES.
BAD = [
    # Commands and options.
    (["frobnicate"], ["unknown command 'frobnicate'", *COMMANDS]),
    (["frobnicate", "--seqlen", "1K"], ["unknown command 'frobnicate'"]),
    (["repot"], ["did you mean report?"]),
    (["--frobnicate"], ["unknown option '--frobnicate'", "--help", "--version"]),
    (["list", "kernels", "--jsno"], ["unknown option '--jsno'", "did you mean --json?"]),
    (["list", "kernels", "--jsno=1"], ["unknown option '--jsno'", "did you mean --json?"]),
    (["list", "kernels", "--python", "/no/such/python"], ["--python /no/such/python", "not an executable file"]),
    (["verify", "--kernel", "cpu-naive", "--python", "/no/such/python"], ["--python /no/such/python", "not an executable"]),
    (["list", "kernels", "extra"], ["unexpected 'extra'"]),
    (["list", "kernels", "--json=5"], ["--json is a switch and takes no value"]),
    (["run", "quick", "--frobnicate", "1"], ["unknown option '--frobnicate'", "--kernel", "--mask", "--out"]),
    # What is listed.
    (["list"], ["what is missing", "kernels, masks, devices, suites or strategies"]),
    (["list", "cheeses"], ["'cheeses'", "kernels, masks, devices, suites, strategies"]),
    (["completion", "tcsh"], ["'tcsh'", "bash, zsh, fish"]),
    # Masks.
    (["mask"], ["pattern", "missing"]),
    (["mask", "diagonal", "--seqlen", "1K"], ["'diagonal'", "causal", "uniform_block_sparse"]),
    (["mask", "causal", "--seqlen"], ["--seqlen", "needs a value"]),
    (["mask", "causal", "--seqlen", "many"], ["--seqlen", "many", "8K"]),
    (["mask", "causal", "--seqlen", "0"], ["--seqlen", "0"]),
    (["mask", "causal", "--seqlen", "-5"], ["--seqlen", "-5"]),
    (["mask", "causal", "--seqlen", "1K", "--seqlen", "2K"], ["--seqlen", "more than once"]),
    (["mask", "full_document", "--seqlen", "1K", "--lengths", "tweets"], ["tweets", "pile", "uniform:A:B"]),
    (["mask", "full_document", "--seqlen", "1K", "--lengths", "{folder}/none.csv"], ["none.csv"]),
    (["mask", "full_document", "--seqlen", "1K", "--lengths", "uniform:9:3"], ["uniform:9:3"]),
    (["mask", "full_document", "--seqlen", "1K", "--lengths", "{folder}/bad.csv"], ["bad.csv", "2"]),
    (["mask", "sliding_window", "--seqlen", "1K", "--window", "wide"], ["--window", "wide"]),
    (["mask", "uniform_block_sparse", "--seqlen", "1K", "--density", "7"], ["density", "7"]),
    (["mask", "block_causal_document", "--seqlen", "1000"], ["1000", "1024"]),
    (["mask", "causal", "--seqlen", "1K", "--png", "{folder}/none/x.png"], ["none/x.png"]),
    (["mask", "{folder}/none.json"], ["none.json"]),
    # Numbers that would wrap, clamp or be read in another base, and values that are empty.
    (["mask", "causal", "--seqlen", ""], ["--seqlen '': the value is empty"]),
    (["mask", "causal", "--seqlen", "9223372036854775807K"], ["--seqlen 9223372036854775807K: is too large"]),
    (["mask", "causal", "--seqlen", "1e30K"], ["--seqlen '1e30K'", "whole number"]),
    (["mask", "causal", "--seqlen", "0x10"], ["--seqlen '0x10'", "whole number"]),
    *[(["mask", "prefix_lm_causal", "--seqlen", "1K", "--seed", text], [f"--seed '{text}'", "whole number"])
      for text in ("0x10", "010", " 5", "+5", "5 ", "1e3", "99999999999999999999")],
    (["mask", "prefix_lm_causal", "--seqlen", "1K", "--index", "1000000000000"],
     ["--index 1000000000000", "too many masks", "the most for prefix_lm_causal"]),
    (["mask", "causal", "--seqlen", "1K", "--pixels", "0x100"], ["--pixels '0x100'", "decimal digits"]),
    (["verify", "--kernel", ","], ["--kernel ','", "empty"]),
    (["verify", "--kernel", "cpu-flash,,cpu-naive"], ["--kernel 'cpu-flash,,cpu-naive'", "empty"]),
    (["verify", "--seqlen", "64", "--scale", "nan"], ["--scale 'nan'", "number"]),
    (["verify", "--seqlen", "64", "--heads", "4611686018427387904:2"], ["--heads 4611686018427387904:2", "65536"]),
    (["verify", "--seqlen", "64", "--head-dim", "9223372036854775807"], ["--head-dim", "65536"]),
    (["run", "--mask", "causal", "--seqlen", "1K,", "--dry-run"], ["--seqlen '1K,'", "empty"]),
    (["run", "--mask", "causal", "--seqlen", "4G", "--dry-run"], ["--seqlen '4G'", "2147483647"]),
    *[([*command, ""], ["the value is empty"])
      for command in (["run", "quick", "--dry-run", "--filter"], ["run", "quick", "--dry-run", "--out"], ["run"], ["report"],
                      ["mask"], ["mask", "causal", "--seqlen", "1K", "--png"], ["plan"], ["list"], ["completion"],
                      ["compare", "a"], ["verify", "--lengths"], ["list", "kernels", "--python"])],
    # Options that nothing reads.
    (["mask", "causal", "--seqlen", "1K", "--kv-heads", "2"], ["--kv-heads", "does not apply to causal"]),
    (["plan", "usp", "--ranks", "4", "--mask", "causal", "--seqlen", "1K", "--window", "4"],
     ["--window does not apply to causal", "sliding_window"]),
    (["plan", "usp", "--ranks", "4", "--mask", "causal", "--seqlen", "1K", "--lengths", "pile"],
     ["--lengths does not apply to causal"]),
    (["verify", "--mask", "causal,full", "--density", "0.5"], ["--density does not apply to causal, full"]),
    (["verify", "--mask", "shuffled:causal", "--lengths", "pile"], ["--lengths does not apply to shuffled:causal"]),
    (["run", "--mask", "causal,full", "--seqlen", "1K", "--window", "4", "--dry-run"],
     ["--window does not apply to causal, full", "sliding_window"]),
    (["run", "--mask", "causal", "--seqlen", "1K", "--lengths", "pile", "--dry-run"], ["--lengths does not apply to causal"]),
    (["run", "--mask", "causal", "--seqlen", "1K", "--strategy", "ring-p2p", "--ranks", "4", "--ulysses", "2", "--dry-run"],
     ["--ulysses does not apply to ring-p2p"]),
    # Names that are nearly right.
    (["mask", "casual", "--seqlen", "1K"], ["did you mean 'causal'?"]),
    (["verify", "--kernel", "cpu-flsh"], ["did you mean 'cpu-flash'?"]),
    (["verify", "--mask", "shuffled:casual"], ["did you mean 'causal'?"]),
    (["verify", "--dtype", "bf61"], ["did you mean 'bf16'?"]),
    (["plan", "ulises", "--ranks", "4", "--mask", "full", "--seqlen", "1K"], ["did you mean 'ulysses'?"]),
    (["run", "--strategy", "ring-p2", "--ranks", "4", "--mask", "full", "--seqlen", "1K"], ["did you mean 'ring-p2p'?"]),
    (["list", "kernel"], ["did you mean 'kernels'?"]),
    # Texts that act on a terminal.
    (["mask", "\x1b[31mcausal\u202e\x9b", "--seqlen", "1K"], ["\\x1b[31mcausal\\u202e\\x9b"]),
    (["\x1b[2J"], ["\\x1b[2J"]),
    (["mask", "causal", "--\x1b[2J", "1"], ["\\x1b[2J"]),
    # Plans.
    (["plan"], ["strategy", "missing", "ring-p2p"]),
    (["plan", "rings", "--ranks", "4", "--mask", "full", "--seqlen", "1K"], ["'rings'", "ring-p2p", "balanced"]),
    (["plan", "usp", "--ranks", "4", "--seqlen", "1K"], ["--mask is missing"]),
    (["plan", "usp", "--ranks", "4", "--mask", "full"], ["--seqlen is missing"]),
    (["plan", "usp", "--mask", "full", "--seqlen", "1K"], ["--ranks is missing", "--topology"]),
    (["plan", "usp", "--ranks", "none", "--mask", "full", "--seqlen", "1K"], ["--ranks", "'none'"]),
    (["plan", "usp", "--ranks", "4", "--topology", "2x4", "--mask", "full", "--seqlen", "1K"],
     ["--topology", "2x4", "8 ranks, but ranks is 4"]),
    (["plan", "usp", "--topology", "8", "--mask", "full", "--seqlen", "1K"], ["--topology '8'", "NODESxDEVICES"]),
    (["plan", "usp", "--ranks", "4", "--ulysses", "3", "--mask", "full", "--seqlen", "1K"],
     ["usp Ulysses degree 3 does not divide the 4 ranks"]),
    (["plan", "usp", "--ranks", "4", "--inner-ring", "2", "--mask", "full", "--seqlen", "1K"],
     ["--inner-ring does not apply to usp", "loongtrain"]),
    (["plan", "ring-p2p", "--ranks", "4", "--ulysses", "2", "--mask", "full", "--seqlen", "1K"],
     ["--ulysses does not apply to ring-p2p", "usp"]),
    (["plan", "ulysses", "--ranks", "128", "--mask", "full", "--seqlen", "1K"], ["128 ranks, 64 heads"]),
    (["plan", "balanced", "--ranks", "4", "--sharding", "zigzag", "--mask", "full", "--seqlen", "1K"],
     ["balanced", "sharding must be auto"]),
    (["plan", "usp", "--ranks", "4", "--placement", "sideways", "--mask", "full", "--seqlen", "1K"],
     ["--placement", "'sideways'", "head-first, context-first"]),
    (["plan", "usp", "--ranks", "4", "--skip", "maybe", "--mask", "full", "--seqlen", "1K"], ["--skip 'maybe'", "yes or no"]),
    (["plan", "usp", "--ranks", "4", "--mask", "diagonal", "--seqlen", "1K"], ["--mask 'diagonal'", "causal"]),
    (["run", "--strategy", "rings", "--ranks", "4", "--mask", "full", "--seqlen", "1K"], ["--strategy 'rings'", "usp"]),
    (["run", "--strategy", "usp", "--mask", "full", "--seqlen", "1K"], ["needs the number of ranks"]),
    (["run", "--ranks", "4", "--mask", "full", "--seqlen", "1K"], ["--strategy"]),
    # Verification.
    (["verify", "--kernel", "gpu-magic"], ["'gpu-magic'", "cpu-naive", "cpu-flash"]),
    (["verify", "--mask", "diagonal"], ["'diagonal'", "causal"]),
    (["verify", "--seqlen", "many"], ["--seqlen", "many"]),
    # Runs.
    (["run", "no-such-suite", "--out", "{folder}/out"], ["no-such-suite", "quick"]),
    (["run", "{folder}/none.toml", "--out", "{folder}/out"], ["none.toml"]),
    (["run", "{folder}/key.toml", "--out", "{folder}/out"], ["key.toml", "kernal", "kernel"]),
    (["run", "{folder}/syntax.toml", "--out", "{folder}/out"], ["syntax.toml:3"]),
    (["run", "--kernel", "gpu-magic", "--mask", "causal", "--seqlen", "1K", "--out", "{folder}/out"],
     ["gpu-magic", "cpu-flash"]),
    (["run", "--kernel", "cpu-flash", "--mask", "causal", "--seqlen", "1K", "--dtype", "f8", "--out", "{folder}/out"],
     ["--dtype", "f8", "bf16"]),
    (["run", "--kernel", "cpu-flash", "--mask", "causal", "--seqlen", "1K", "--direction", "up", "--out",
      "{folder}/out"], ["--direction", "up", "forward"]),
    (["run", "--kernel", "cpu-flash", "--mask", "causal", "--seqlen", "1K", "--filter", "kernel=", "--out",
      "{folder}/out"], ["--filter"]),
    # Results.
    (["report"], ["results", "missing"]),
    (["report", "{folder}/none"], ["none"]),
    (["report", "{folder}"], ["results.jsonl"]),
    (["report", "{folder}/bad.csv"], ["bad.csv"]),
    (["compare", "{folder}/none"], ["missing"]),
    (["compare", "{folder}/none", "{folder}/none"], ["none"]),
    (["compare", "a", "b", "--fail-below", "soon"], ["--fail-below", "'soon'", "number"]),
]

FILES = {
    "bad.csv": "512\nmany\n",
    "key.toml": '[[case]]\nkernal = ["cpu-flash"]\nmask = ["causal"]\nseqlen = ["1K"]\n',
    "syntax.toml": '[[case]]\nkernel = ["cpu-flash"\nmask = ',
}


class BadInputTest(unittest.TestCase):
    def test_each(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in FILES.items():
                (Path(folder) / name).write_text(text)
            for arguments, expected in BAD:
                with self.subTest(" ".join(arguments)):
                    result = run(*[argument.replace("{folder}", folder) for argument in arguments])
                    self.assertEqual(result.returncode, 2, result.stderr)
                    self.assertEqual(result.stdout, "")
                    self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
                    self.assertTrue(result.stderr.startswith("longspan"), result.stderr)
                    for words in expected:
                        self.assertIn(words, result.stderr)


if __name__ == "__main__":
    unittest.main()
