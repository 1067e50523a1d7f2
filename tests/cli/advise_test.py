"""`longspan advise`: which kernel, strategy and degrees a machine or a workload wants."""

import json
import tempfile
import unittest
from pathlib import Path

from program import run
from simulated import CAUSAL, FOUR, H200, NODES, STRATEGIES, simulate


def advise(*arguments):
    result = run("advise", *arguments, "--json")
    if result.returncode != 0:
        raise AssertionError(result.stderr)
    return json.loads(result.stdout)["candidates"]


def with_kernels(folder, **kernels):
    """The machine file of an H200 with more kernels: name: (how many times sm90's times, head dims)."""
    machine = json.loads(Path(H200).read_text())
    for name, (times, head_dims) in kernels.items():
        kernel = json.loads(json.dumps(machine["kernels"]["sm90"]))
        kernel["head_dims"] = head_dims
        for direction in ("forward", "backward"):
            kernel[direction].pop("head_dim_factors")
            for figure in ("tile_s", "row_tile_s", "key_tile_s", "launch_s"):
                kernel[direction][figure]["value"] *= times
        machine["kernels"][name] = kernel
    path = Path(folder) / "machine.json"
    path.write_text(json.dumps(machine))
    return ["--machine", str(path), "--ranks", "4", *CAUSAL]


class KernelChoiceTest(unittest.TestCase):
    """`advise` on a machine file with several kernels."""

    def test_every_kernel_that_takes_the_tensors_is_tried_and_the_others_say_why(self):
        with tempfile.TemporaryDirectory() as folder:
            problem = with_kernels(folder, slow=(2, [64, 128]), narrow=(0.5, [64]))
            advice = json.loads(run("advise", *problem, "--json").stdout)
            text = run("advise", *problem).stdout
        candidates = advice["candidates"]
        self.assertEqual({(c["kernel"], c["strategy"]) for c in candidates}, {(k, s) for k in ("slow", "sm90") for s in STRATEGIES})
        self.assertEqual(candidates[0]["kernel"], "sm90")
        self.assertEqual(list(advice["refused_kernels"]), ["narrow"])
        for strategy in STRATEGIES:
            both = {c["kernel"]: c["forward_s"] + c["backward_s"] for c in candidates if c["strategy"] == strategy}
            self.assertGreater(both["slow"], 1.5 * both["sm90"])
        self.assertRegex(text, r"kernels +sm90: \S+ ms with ")
        self.assertRegex(text, r"\n +slow: \S+ ms with .*, \d+% slower: computes ")
        self.assertRegex(text, r"\n +narrow: is priced for bf16, f16 and head_dim 64, the same of v, not for bf16 and head_dim 128")

    def test_a_kernel_may_be_given(self):
        with tempfile.TemporaryDirectory() as folder:
            problem = with_kernels(folder, slow=(2, [64, 128]), narrow=(0.5, [64]))
            self.assertEqual({c["kernel"] for c in advise(*problem, "--kernel", "slow")}, {"slow"})
            self.assertIn("narrow is priced for", run("advise", *problem, "--kernel", "narrow").stderr)
            none = run("advise", *problem, "--head-dim", "96")
        self.assertEqual((none.returncode, none.stderr.count("\n")), (2, 1), none.stderr)
        for name in ("narrow", "slow", "sm90"):
            self.assertIn(f"{name} is priced for", none.stderr)

    def test_a_kernel_has_the_times_that_simulate_predicts(self):
        with tempfile.TemporaryDirectory() as folder:
            problem = with_kernels(folder, slow=(2, [64, 128]))
            for c in advise(*problem):
                if c["strategy"] == "balanced":
                    [line] = simulate("balanced", *problem, "--kernel", c["kernel"])
                    self.assertAlmostEqual(line["time_s"], c["forward_s"])


class ShardingTest(unittest.TestCase):
    def test_rings_are_also_tried_with_other_shardings(self):
        machine = ["--machine", H200, "--ranks", "4"]
        own = {(c["strategy"], c.get("sharding")) for c in advise(*machine, *CAUSAL)}
        self.assertEqual(own, {(s, None) for s in STRATEGIES})
        rings = set(STRATEGIES) - {"ulysses", "balanced"}
        # The whole sequence is one document: the strategies' own choice is a zigzag.
        causal = {(c["strategy"], c.get("sharding")) for c in advise(*machine, *CAUSAL, "--shardings")}
        self.assertEqual(causal, own | {(s, "contiguous") for s in rings})
        documents = ["--mask", "causal_document", "--lengths", "long-mix", "--seqlen", "64K", "--shardings"]
        candidates = advise(*machine, *documents)
        self.assertEqual({(c["strategy"], c.get("sharding")) for c in candidates},
                         own | {(s, sharding) for s in rings for sharding in ("contiguous", "zigzag")})
        [zigzag] = [c for c in candidates if (c["strategy"], c.get("sharding")) == ("ring-p2p", "zigzag")]
        [line] = simulate("ring-p2p", *machine, *documents[:-1], "--sharding", "zigzag")
        self.assertAlmostEqual(line["time_s"], zigzag["forward_s"])
        self.assertIn("ring-p2p, zigzag", run("advise", *machine, *documents).stdout)


class AdviseTest(unittest.TestCase):
    NODES = ["--machine", NODES, "--topology", "2x8", "--transport", "nccl", *CAUSAL]

    def test_candidates_are_every_strategy_with_its_degrees_and_placements_fastest_first(self):
        candidates = advise(*self.NODES)
        self.assertEqual({c["strategy"] for c in candidates}, set(STRATEGIES))
        for strategy in ("usp", "loongtrain"):
            self.assertEqual({(c["ulysses"], c["placement"]) for c in candidates if c["strategy"] == strategy},
                             {(u, p) for u in (2, 4, 8) for p in ("head-first", "context-first")})
        times = [c["forward_s"] + c["backward_s"] for c in candidates]
        self.assertEqual(times, sorted(times))
        for c, time_s in zip(candidates, times):
            self.assertLessEqual(c["faster_links_s"], time_s)
            self.assertGreaterEqual(c["slower_links_s"], time_s)
            self.assertEqual(c["too_close"], time_s < 1.03 * times[0])
            self.assertGreater(c["held_bytes"], 0)

    def test_a_candidate_has_the_times_that_simulate_predicts(self):
        [usp] = [c for c in advise("--machine", H200, "--ranks", "4", *CAUSAL) if c["strategy"] == "usp"]
        for direction in ("forward", "backward"):
            [line] = simulate("usp", "--machine", H200, "--ranks", "4", "--ulysses", "2", *CAUSAL, "--direction", direction)
            self.assertAlmostEqual(line["time_s"], usp[direction + "_s"])

    def test_what_does_not_fit_in_memory_comes_last_and_is_not_chosen(self):
        free = advise(*self.NODES)
        self.assertTrue(all(c["fits"] for c in free))
        own = 2048 * (2 * 2 * (2 * 64 + 2 * 8) * 128 + 4 * 64)  # of 32K tokens on 16 ranks
        for c in free:
            self.assertAlmostEqual(c["memory_bytes"], own + c["held_bytes"], delta=0.01 * own)
        limit = sorted(c["memory_bytes"] for c in free)[len(free) // 2]
        tight = advise(*self.NODES, "--memory", str(int(limit)))
        self.assertEqual([c["fits"] for c in tight], sorted((c["fits"] for c in tight), reverse=True))
        for c in tight:
            self.assertEqual(c["fits"], c["memory_bytes"] <= int(limit))
        self.assertIn("does not fit", run("advise", *self.NODES, "--memory", str(int(limit))).stdout)
        self.assertIn("--memory", run("advise", *self.NODES, "--memory", "much").stderr)

    def test_slower_candidates_have_a_reason(self):
        candidates = advise(*self.NODES)
        for c in candidates[1:]:
            if c["forward_s"] + c["backward_s"] > 1.001 * (candidates[0]["forward_s"] + candidates[0]["backward_s"]):
                self.assertRegex(c["reason"], "^(computes|waits|packs|adds and merges) .* longer")
        self.assertNotIn("reason", candidates[0])
        self.assertRegex(run("advise", *self.NODES).stdout, "% slower: (computes|waits|packs|adds and merges) ")

    def test_the_nearest_measured_case_is_shown_with_its_error(self):
        one = ["--machine", H200, "--ranks", "8", "--mask", "causal_document", "--lengths", "long-mix", "--seqlen", "256K", "--measured", FOUR]
        advice = json.loads(run("advise", *one, "--json").stdout)
        self.assertEqual([each["direction"] for each in advice["nearest_measured"]], ["forward", "backward"])
        for each in advice["nearest_measured"]:
            self.assertEqual(each["case"]["strategy"], advice["candidates"][0]["strategy"])
            self.assertEqual((each["case"]["mask"], each["case"]["ranks"], each["case"]["seqlen"]), ("causal_document", 4, 128 * 1024))
            self.assertLess(abs(each["predicted_s"] / each["measured_s"] - 1), 0.1)
        self.assertIn("nearest measured, backward: ", run("advise", *one).stdout)

    def test_predictions_of_all_candidates_can_be_drawn(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "predictions.jsonl"
            candidates = advise("--machine", H200, "--ranks", "4", *CAUSAL, "--predictions", str(path))
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            self.assertEqual(len(lines), 2 * len(candidates))
            for line, candidate in zip(lines[::2], candidates):
                self.assertEqual(line["case"]["strategy"], candidate["strategy"])
                self.assertAlmostEqual(line["time_s"], candidate["forward_s"])
                self.assertLessEqual(line["interval_s"][0], line["time_s"])
            self.assertEqual(run("report", str(path), "-o", f"{folder}/page.html").returncode, 0)

    def test_a_strategy_that_does_not_support_the_problem_is_no_candidate(self):
        names = {c["strategy"] for c in advise(*self.NODES, "--heads", "8:2")}
        self.assertEqual(names, set(STRATEGIES) - {"ulysses"})

    def test_the_text_names_what_is_too_close_and_what_other_links_would_change(self):
        result = run("advise", *self.NODES)
        self.assertEqual(result.returncode, 0, result.stderr)
        for words in ("fastest", "too close to call", "% slower", "with links a quarter slower: ", "not measured"):
            self.assertIn(words, result.stdout)


class WorkloadAdviceTest(unittest.TestCase):
    """One degree for all micro-batches of a workload against one for each, on eight GPUs."""

    MODEL = {"heads_q": 32, "heads_kv": 8, "head_dim": 128, "layers": 4}
    LONG, SHORT = [30000, 2768], [512] * 16

    def advise(self, steps, *arguments, header={}):
        header = {"type": "workload", "version": 1, "model": self.MODEL, **header}
        lines = [header] + [{"mask": "causal_document", "micro_batches": batches} for batches in steps]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "w.jsonl"
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))
            return run("advise", "--workload", str(path), "--machine", H200, "--ranks", "8", *arguments)

    def advice(self, steps, *arguments, header={}):
        done = self.advise(steps, "--json", *arguments, header=header)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def one(self, advice, degree, strategy):
        [policy] = [p for p in advice["one_degree"] if (p["degree"], p.get("strategy")) == (degree, strategy)]
        return policy

    def test_a_step_of_one_micro_batch_takes_what_simulate_predicts(self):
        advice = self.advice([[self.LONG]], header={"outside_s_per_token": 1e-6})
        passes = []
        for direction in ("forward", "backward"):
            [line] = simulate("balanced", "--machine", H200, "--ranks", "8", "--mask", "causal_document", "--seqlen", "32K",
                              "--lengths", "list:30000:2768", "--heads", "32:8", "--direction", direction)
            passes.append(line)
        balanced = self.one(advice, 8, "balanced")
        outside_s = 1e-6 * 32768 / 8
        self.assertAlmostEqual(balanced["step_s"]["p50"], 4 * sum(line["time_s"] for line in passes) + outside_s)
        ranks = [line["parallel"] for line in passes]
        exposed_s = sum(sum(each["exposed_s"]) for each in ranks)
        self.assertAlmostEqual(balanced["exposed_share"], exposed_s / (8 * sum(line["time_s"] for line in passes)))
        busy_s = sum(sum(sum(each[part]) for part in ("compute_s", "reorder_s", "merge_s")) for each in ranks)
        self.assertAlmostEqual(balanced["idle_gpu_hours"] * 3600,
                               8 * balanced["step_s"]["p50"] - 4 * busy_s - 8 * outside_s)
        self.assertGreater(balanced["planned_step_s"]["p50"], balanced["step_s"]["p50"])
        held = max(ranks[1]["held_bytes"])
        kept = 4096 * (2 * (2 * 32 + 2 * 8) * 128 + 4 * 32)  # q, k, v, o and lse of a layer
        gradients = 4096 * 2 * (2 * 32 + 2 * 8) * 128
        self.assertAlmostEqual(balanced["memory_bytes"], 4 * kept + gradients + held)

    def test_mixed_micro_batches_want_degrees_of_their_own(self):
        steps = [[self.LONG] + 4 * [self.SHORT], 8 * [self.SHORT]]
        advice = self.advice(steps)
        self.assertEqual({p["degree"] for p in advice["one_degree"]}, {1, 2, 4, 8})
        each = advice["each_micro_batch"]
        self.assertEqual(sum(each["degrees"].values()), 13)
        self.assertGreaterEqual(len(each["degrees"]), 2)
        self.assertEqual(each["regret"], 0)
        self.assertGreater(each["planned_regret"], 0)
        best = min(p["regret"] for p in advice["one_degree"])
        self.assertGreater(best, advice["each_step"]["regret"])
        self.assertGreaterEqual(advice["each_step"]["regret"], 0)
        for policy in advice["one_degree"]:
            self.assertEqual(policy["degrees"], {str(policy["degree"]): 13})
            self.assertGreaterEqual(policy["planned_regret"], policy["regret"])
            self.assertAlmostEqual(policy["regret"], policy["step_s"]["sum"] / each["step_s"]["sum"] - 1)

    def test_degrees_that_do_not_fit_are_left_out(self):
        steps = [[self.LONG] + 4 * [self.SHORT]]
        free = self.advice(steps)
        four, eight = (min(p["memory_bytes"] for p in free["one_degree"] if p["degree"] == degree) for degree in (4, 8))
        tight = self.advice(steps, header={"memory_bytes": (four + eight) / 2})
        fitting = {p["degree"] for p in tight["one_degree"] if p["fits"]}
        self.assertEqual(fitting, {8})
        for policy in tight["one_degree"]:
            self.assertEqual(policy["fits"], policy["memory_bytes"] <= tight["memory_bytes"])
            self.assertEqual("step_s" in policy, policy["fits"])
        self.assertLessEqual(tight["each_micro_batch"]["memory_bytes"], tight["memory_bytes"])
        none = self.advise(steps, header={"memory_bytes": eight / 2})
        self.assertEqual(none.returncode, 2)
        self.assertIn("a micro-batch of 32768 tokens needs", none.stderr)

    def test_nodes_tensor_parallelism_and_pipelines(self):
        header = {"parallel": {"dp": 2, "cp": 8, "pp": 2, "tp": 2}}
        done = {}
        for name, more in (("whole", {}), ("divided", header)):
            lines = [{"type": "workload", "version": 1, "model": self.MODEL, **more}, {"mask": "causal_document", "micro_batches": [self.LONG]}]
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "w.jsonl"
                path.write_text("".join(json.dumps(line) + "\n" for line in lines))
                result = run("advise", "--workload", str(path), "--machine", NODES, "--topology", "2x8", "--transport", "nccl", "--json")
                self.assertEqual(result.returncode, 0, result.stderr)
                done[name] = json.loads(result.stdout)
        self.assertEqual({p["degree"] for p in done["whole"]["one_degree"]}, {1, 2, 4, 8, 16})
        for degree, between in ((8, False), (16, True)):
            for p in done["whole"]["one_degree"]:
                if p["degree"] == degree:
                    self.assertEqual(p["between_nodes_bytes"] > 0, between)
        # Half of the heads and half of the layers on each GPU, and a bubble as long as the one micro-batch.
        whole, divided = (self.one(done[name], 1, None)["step_s"]["p50"] for name in ("whole", "divided"))
        self.assertAlmostEqual(divided / whole, 0.5, delta=0.05)

    def test_the_text_has_a_row_for_each_degree(self):
        done = self.advise([[self.LONG, self.SHORT]])
        self.assertEqual(done.returncode, 0, done.stderr)
        for degree in (1, 2, 4, 8):
            self.assertRegex(done.stdout, rf"\n +{degree}  \w")
        for words in ("one for each micro-batch", "micro-batches by degree:", "not hidden", "regret"):
            self.assertIn(words, done.stdout)

    def test_options_that_the_workload_answers_are_refused(self):
        for option in ("--mask", "--seqlen", "--lengths", "--heads"):
            done = self.advise([[self.SHORT]], option, {"--mask": "full", "--seqlen": "1K", "--lengths": "pile"}.get(option, "8"))
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"{option} cannot be combined with --workload", done.stderr)


if __name__ == "__main__":
    unittest.main()
