#!/usr/bin/env python3
"""`longspan mask` from the command line: golden values, files, one-line errors, memory at a million tokens.

usage: mask_command_test.py LONGSPAN [--sanitized]
"""
import json
import os
import resource
import subprocess
import sys
import tempfile
import unittest

# Visible area, seed 42: (S = 1024, S = 8192, S = 8192 and mask 1, S = 49152).
GOLDEN = {
    "full_document": (447594, 15108732, 31734342, 67918544),
    "causal_document": (224309, 7558462, 15871267, 33983848),
    "sliding_window": (1048576, 15735808, 15735808, 99662848),
    "sliding_window_causal": (524800, 7872000, 7872000, 49856000),
    "share_question": (461172, 10325629, 19853554, 60474663),
    "causal_blockwise": (234449, 8271614, 17578559, 141074943),
    "prefix_lm_causal": (550906, 35222928, 33642373, 2086019593),
    "prefix_lm_document": (321011, 7849026, 3029830, 35347597),
    "global_sliding_window": (913520, 58397512, 14146858, 1620820098),
    "block_causal_document": (1048576, 19922944, 20971520, 121634816),
}


def mask(*arguments):
    return subprocess.run([LONGSPAN, "mask", *arguments], capture_output=True, text=True, timeout=1200)


class MaskCommand(unittest.TestCase):
    def drawn(self, *arguments):
        result = mask(*arguments, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr, "")
        return json.loads(result.stdout)

    def test_golden_values(self):
        for pattern, areas in GOLDEN.items():
            for (seqlen, index), area in zip((("1K", 0), ("8K", 0), ("8192", 1), ("48K", 0)), areas):
                drawn = self.drawn(pattern, "--seqlen", seqlen, "--seed", "42", "--index", str(index))
                self.assertEqual(drawn["area"], area, (pattern, seqlen, index))
                self.assertEqual(drawn["area"], sum(head["area"] for head in drawn["heads"]))

    def test_golden_long_mix(self):
        for seqlen, full, causal, documents in (("64K", 809184696, 404625116, 52), ("128K", 1682916452, 841523762, 84),
                                                ("768K", 81158269510, 40579527971, 106)):
            drawn = self.drawn("full_document", "--seqlen", seqlen, "--lengths", "long-mix")
            self.assertEqual((drawn["area"], len(drawn["lengths"])), (full, documents))
            self.assertEqual(self.drawn("causal_document", "--seqlen", seqlen, "--lengths", "long-mix")["area"], causal)

    def test_json_has_the_promised_keys(self):
        drawn = self.drawn("prefix_lm_document", "--seqlen", "1K", "--index", "2")
        self.assertEqual(list(drawn), ["pattern", "seqlen", "seed", "index", "lengths", "params", "heads", "area",
                                       "density"])
        self.assertEqual((drawn["pattern"], drawn["seqlen"], drawn["seed"], drawn["index"]),
                         ("prefix_lm_document", 1024, 42, 2))
        self.assertEqual(sum(drawn["lengths"]), 1024)
        self.assertEqual(drawn["density"], drawn["area"] / 1024**2)
        self.assertTrue(all(len(band) == 6 for band in drawn["heads"][0]["bands"]))

    def test_options_reach_the_pattern(self):
        self.assertEqual(self.drawn("sliding_window", "--seqlen", "4K", "--window", "1K,3")["params"],
                         {"window_left": 1024, "window_right": 3})
        self.assertEqual(self.drawn("sliding_window", "--seqlen", "4K", "--window", "5")["params"],
                         {"window_left": 5, "window_right": 5})
        self.assertEqual(self.drawn("sliding_window_causal", "--seqlen", "4K", "--window", "5")["area"],
                         4096 * 6 - 15)
        self.assertEqual(self.drawn("prefix_lm_causal", "--seqlen", "4K", "--prefix", "7")["params"], {"prefix": 7})
        drawn = self.drawn("variable_block_sparse", "--seqlen", "8K", "--block", "512", "--block-min", "64",
                           "--density", "0.25", "--kv-heads", "3")
        self.assertEqual(drawn["params"], {"block": 512, "block_min": 64, "density": 0.25})
        self.assertEqual(len(drawn["heads"]), 3)

    def test_files_are_read_back(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "mine.json")
            written = mask("uniform_block_sparse", "--seqlen", "4K", "--kv-heads", "2", "--json").stdout
            with open(path, "w") as file:
                file.write(written)
            self.assertEqual(self.drawn(path)["heads"], json.loads(written)["heads"])
            lengths = os.path.join(folder, "lengths.csv")
            with open(lengths, "w") as file:
                file.write("100\n200\n900\n")
            self.assertEqual(self.drawn("causal_document", "--seqlen", "1K", "--lengths", lengths)["lengths"],
                             [100, 200, 724])
            picture = os.path.join(folder, "mask.png")
            self.assertEqual(mask("causal", "--seqlen", "1K", "--png", picture).returncode, 0)
            with open(picture, "rb") as file:
                self.assertEqual(file.read(8), b"\x89PNG\r\n\x1a\n")

    def test_text(self):
        result = mask("causal", "--seqlen", "3", "--text")
        self.assertIn("██····\n████··\n██████\n", result.stdout)
        self.assertIn("6 visible pairs", result.stdout)

    def test_wrong_input_is_one_line(self):
        for arguments, part in (
            (["casual", "--seqlen", "8"], "the patterns are full, causal, "),
            (["causal"], "--seqlen: is missing"),
            (["causal", "--seqlen", "8Q"], "such as 1000, 8K or 1M"),
            (["causal", "--seqlen", "0"], "--seqlen 0: must be 1 to"),
            (["causal", "--seqlen", "8", "--window", "3"], "--window: does not apply to causal, which takes no"),
            (["uniform_block_sparse", "--seqlen", "8", "--block-min", "3"],
             "--block-min: does not apply to uniform_block_sparse, which takes --block, --density, --kv-heads"),
            (["sliding_window_causal", "--seqlen", "8", "--window", "3,4"], "has a left side only"),
            (["sliding_window", "--seqlen", "8", "--window", "3,"], "--window '': must be a whole number"),
            (["causal", "--seqlen", "8", "--seed", "-1"], "--seed -1: must be at least 0"),
            (["causal", "--seqlen", "8", "--tile", "128"], "must be ROWSxCOLUMNS"),
            (["causal", "--seqlen", "8", "--tile", "0x8"], "must be 1 to 65535"),
            (["causal", "--seqlen", "8", "--pixels", "0"], "--pixels 0: must be"),
            (["causal", "--seqlen", "8", "--json", "--text"], "--json: cannot be combined with"),
            (["causal", "--seqlen", "8", "--png", "/no/such/folder/x.png"], "cannot be written: No such file"),
            (["causal_document", "--seqlen", "2M"], "exceed its limit of 1M"),
            (["causal_document", "--seqlen", "8", "--lengths", "x"], "--lengths x: is unknown"),
            (["nothing.json"], "nothing.json: cannot be opened"),
            (["nothing.json", "--seed", "3"], "--seed: does not apply to a mask from a file"),
        ):
            result = mask(*arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
            self.assertIn(part, result.stderr)

    @unittest.skipIf("--sanitized" in sys.argv, "a sanitizer uses additional memory")
    def test_a_million_tokens_take_little_memory(self):
        for pattern in (["causal_document"], ["global_sliding_window"],
                        ["uniform_block_sparse", "--block", "64", "--density", "0.05"],
                        ["variable_block_sparse", "--density", "0.05"]):
            result = mask(*pattern, "--seqlen", "1M")
            self.assertEqual(result.returncode, 0, result.stderr)
        self.assertLess(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, 256 * 1024)  # the largest of all


if __name__ == "__main__":
    LONGSPAN = sys.argv[1]
    unittest.main(argv=sys.argv[:1])
