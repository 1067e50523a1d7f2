"""`longspan plan`: the volumes of the formulas in docs/concepts/schedules.md, every option, and the text output."""

import json
import unittest

from program import run

STRATEGIES = ["ulysses", "ring-p2p", "ring-allgather", "usp", "loongtrain", "balanced"]


def plan(*arguments):
    result = run("plan", *arguments, "--json")
    if result.returncode != 0:
        raise AssertionError(result.stderr)
    return json.loads(result.stdout)


class PlanTest(unittest.TestCase):
    def test_every_strategy_assigns_every_token_once_and_attends_to_the_whole_mask(self):
        for strategy in STRATEGIES:
            for mask in ["causal", "share_question", "uniform_block_sparse"]:
                with self.subTest(strategy=strategy, mask=mask):
                    p = plan(strategy, "--ranks", "8", "--mask", mask, "--seqlen", "8K")
                    tokens = [t for ranges in p["owned"] for begin, end in ranges for t in range(begin, end)]
                    self.assertEqual(sorted(tokens), list(range(8192)))
                    for direction in ["forward", "backward"]:
                        one = p[direction]
                        self.assertEqual(sum(one["area"]), p["area"])
                        self.assertEqual(len(one["by_round"]), one["rounds"])
                        self.assertEqual(sum(sum(r["sent_bytes"]) for r in one["by_round"]), sum(one["sent_bytes"]))
                        self.assertEqual(sum(m[3] for r in one["by_round"] for m in r["moves"]),
                                         sum(one["sent_bytes"]))

    def test_volumes_equal_the_formulas(self):
        ranks, tokens, heads_q, heads_kv, dim = 8, 8192, 64, 8, 128
        t = tokens // ranks
        exchange = lambda u: (u - 1) * t * dim * (2 * heads_q + 2 * heads_kv) // u
        lse = lambda u: (u - 1) * t * heads_q * 4 // u  # lse travels with o, in 4 bytes
        ring = lambda r: 2 * (r - 1) * t * heads_kv * dim
        cases = [("ulysses", [], 2 * exchange(8) + lse(8), 2 * exchange(8)),
                 ("ring-p2p", [], 2 * ring(8), None),
                 ("ring-allgather", [], 2 * ring(8), None),
                 ("usp", ["--ulysses", "2"], 2 * exchange(2) + lse(2) + 2 * ring(4), None),
                 ("loongtrain", ["--ulysses", "2"], 2 * exchange(2) + lse(2) + 2 * ring(4), None)]
        for strategy, options, forward, backward in cases:
            with self.subTest(strategy):
                p = plan(strategy, "--ranks", "8", "--mask", "full", "--seqlen", "8K", "--skip", "no", *options)
                self.assertEqual(set(p["forward"]["sent_bytes"]), {forward})
                if backward is not None:
                    self.assertEqual(set(p["backward"]["sent_bytes"]), {backward})

    def test_topology_separates_bytes_within_and_between_nodes(self):
        one = plan("ulysses", "--topology", "1x8", "--mask", "full", "--seqlen", "8K")["forward"]
        two = plan("ulysses", "--topology", "2x4", "--mask", "full", "--seqlen", "8K")["forward"]
        self.assertEqual(one["sent_bytes"], two["sent_bytes"])
        self.assertEqual(set(one["between_nodes_bytes"]), {0})
        # Four of a rank's seven peers are on the other node.
        self.assertEqual(two["between_nodes_bytes"][0] * 7, two["sent_bytes"][0] * 4)

    def test_placement_decides_what_crosses_the_nodes(self):
        options = ["--topology", "2x4", "--ulysses", "4", "--mask", "full", "--seqlen", "8K"]
        head = plan("usp", *options, "--placement", "head-first")["forward"]["between_nodes_bytes"]
        context = plan("usp", *options, "--placement", "context-first")["forward"]["between_nodes_bytes"]
        self.assertLess(max(head), max(context))

    def test_options_change_the_plan(self):
        base = ["--ranks", "8", "--mask", "sliding_window_causal", "--window", "256,0", "--seqlen", "8K"]
        def total(*options):
            return sum(plan("ring-p2p", *base, *options)["forward"]["sent_bytes"])
        self.assertLess(total("--sharding", "contiguous"), total("--sharding", "zigzag"))
        self.assertLess(total(), total("--skip", "no"))
        p = plan("loongtrain", "--ranks", "16", "--ulysses", "2", "--inner-ring", "4", "--mask", "full", "--seqlen", "8K")
        self.assertEqual((p["ulysses"], p["inner_ring"], p["forward"]["rounds"]), (2, 4, 9))

    def test_a_thousand_ranks_are_planned(self):
        p = plan("balanced", "--topology", "128x8", "--mask", "causal_document", "--seqlen", "1M")
        self.assertEqual(len(p["owned"]), 1024)
        self.assertNotIn("moves", p["forward"]["by_round"][0])

    def test_text_shows_ranks_and_rounds(self):
        result = run("plan", "ring-p2p", "--ranks", "4", "--mask", "causal", "--seqlen", "8K")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("ring-p2p on 4 ranks", result.stdout)
        self.assertIn("zigzag", result.stdout.replace("per-document", "zigzag"))
        self.assertRegex(result.stdout, r"rank +round 0 +round 1 +round 2 +round 3")
        self.assertRegex(result.stdout, r"\n +0 +\d+% +<3 \d+%")
        self.assertIn("2048", result.stdout)


if __name__ == "__main__":
    unittest.main()
