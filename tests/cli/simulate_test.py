"""`longspan simulate`: predictions for four and eight GPUs from figures of one and two, options, the record and the timeline."""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from program import run
from simulated import CAUSAL, EIGHT, EIGHT_LEFT, FOUR, FOUR_HYBRIDS, H200, NODES, ROOT, STRATEGIES, simulate

MEAN, LARGEST = 0.03, 0.10  # errors that predictions for several GPUs may have, but for the cases that a test names


class PredictionTest(unittest.TestCase):
    """Holds the machine file that is fitted to one and two GPUs (tools/fit-machine) to measurements on four."""

    @classmethod
    def setUpClass(cls):
        *cls.cases, cls.summary = simulate("--machine", H200, "--against", FOUR)

    def test_errors_on_four_gpus(self):
        errors = self.summary["errors"]["all"]["several ranks"]
        self.assertEqual(errors["cases"], 109)
        self.assertLessEqual(errors["mean"], MEAN)
        self.assertLessEqual(errors["largest"], LARGEST)

    def test_errors_of_what_buffers_hold(self):
        self.assertEqual(self.summary["errors"]["memory"]["held"]["cases"], 109)
        for case in self.cases:
            measured, predicted = case["measured"]["held_bytes"], case["predicted"]["held_bytes"]
            if (case["case"].get("strategy"), case["case"]["direction"]) == ("balanced", "backward"):
                self.assertLess(abs(predicted / measured - 1), 0.12)  # buffers of a forward pass that fit no request
            elif measured:
                self.assertLessEqual(abs(predicted / measured - 1), 0.005)

    def test_errors_of_the_kernel_alone(self):
        one = ROOT / "results" / "nvidia-h200" / "2026-11-26-calibration.jsonl"
        *_, summary = simulate("--machine", H200, "--against", str(one))
        self.assertLessEqual(summary["errors"]["all"]["one device"]["mean"], 0.03)

    def test_what_the_choice_of_a_strategy_loses(self):
        regrets = [choice["regret"] for choice in self.summary["choices"]]
        self.assertEqual(len(regrets), 22)
        self.assertLessEqual(sum(regrets) / len(regrets), 0.015)
        self.assertLessEqual(max(regrets), 0.05)

    def test_errors_are_those_of_the_cases(self):
        several = [case for case in self.cases if "strategy" in case["case"]]
        for case in several:
            self.assertAlmostEqual(case["error"], abs(case["predicted_s"] / case["measured_s"] - 1))
            parts = sum(value for name, value in case["predicted"].items() if name.endswith("_s"))
            self.assertLessEqual(parts, case["predicted_s"] * 1.0001)
        self.assertAlmostEqual(sum(case["error"] for case in several) / len(several),
                               self.summary["errors"]["all"]["several ranks"]["mean"])

    def test_the_text_shows_the_same(self):
        result = run("simulate", "--machine", H200, "--against", FOUR)
        self.assertEqual(result.returncode, 0, result.stderr)
        for word in ("several ranks", "loongtrain", "causal_document", "regret"):
            self.assertIn(word, result.stdout)

    def test_errors_of_hybrids_on_four_gpus(self):
        *cases, _ = simulate("--machine", H200, "--against", FOUR_HYBRIDS)
        self.assertEqual(len(cases), 8)
        large = {(case["case"]["strategy"], case["case"]["mask"]): case["error"] for case in cases if case["error"] > LARGEST}
        # Documents take less time than the kernel's price says; with the causal mask one rank waited 23 ms, the others at most 2.3.
        self.assertLessEqual(set(large), {("loongtrain", "causal_document"), ("loongtrain", "causal")})
        self.assertLessEqual(max(case["error"] for case in cases), 0.135)
        others = [case["error"] for case in cases if case["error"] <= LARGEST]
        self.assertLessEqual(sum(others) / len(others), MEAN)


class EightGpusTest(unittest.TestCase):
    """Holds the same machine file to measurements on eight. It misses the bars where the lab's predictions say why."""

    @classmethod
    def setUpClass(cls):
        *cls.cases, cls.summary = simulate("--machine", H200, "--against", EIGHT)

    def test_errors_on_eight_gpus(self):
        errors = self.summary["errors"]["all"]["several ranks"]
        self.assertEqual(errors["cases"], 85)
        large = {(case["case"]["strategy"], case["case"]["mask"], case["case"]["direction"]) for case in self.cases if case["error"] > LARGEST}
        # `balanced` waits longer for its copies, for a reason that is not known.
        self.assertLessEqual(large, {("balanced", "causal_document", "forward"), ("balanced", "full_document", "forward")})
        self.assertLessEqual(errors["largest"], 0.25)
        others = [case["error"] for case in self.cases if case["error"] <= LARGEST]
        self.assertLessEqual(sum(others) / len(others), MEAN)
        self.assertLessEqual(errors["mean"], 0.032)

    def test_errors_on_eight_gpus_of_another_host(self):
        *cases, summary = simulate("--machine", H200, "--against", EIGHT_LEFT)
        self.assertEqual(summary["errors"]["all"]["several ranks"]["cases"], 28)
        large = {(case["case"]["strategy"], case["case"]["mask"], case["case"]["heads_kv"], case["case"]["direction"])
                 for case in cases if case["error"] > LARGEST}
        # As above; and with equal heads the build, c6da538, let large copies wait behind those of own rows.
        self.assertLessEqual(large, {("balanced", "causal_document", 8, "forward"), ("balanced", "causal", 64, "forward")})
        self.assertLessEqual(summary["errors"]["all"]["several ranks"]["mean"], 0.044)

    def test_bytes_of_buffers_on_eight_gpus(self):
        held = self.summary["errors"]["memory"]["held"]
        self.assertEqual(held["cases"], 85)
        self.assertLessEqual(held["largest"], 0.005)

    def test_what_the_choice_of_a_strategy_loses_on_eight_gpus(self):
        choices = self.summary["choices"]
        self.assertEqual(len(choices), 16)
        self.assertLessEqual(sum(choice["regret"] for choice in choices) / len(choices), 0.015)
        large = [choice for choice in choices if choice["regret"] > 0.05]
        # `balanced` was chosen for documents, forward, where its copies are predicted to be hidden.
        self.assertLessEqual({re.match(r"sm90 (\w+ \d+K).*(forward|backward)", choice["problem"]).groups() for choice in large},
                             {("causal_document 64K", "forward"), ("full_document 64K", "forward")})
        self.assertLessEqual(max(choice["regret"] for choice in choices), 0.12)


class SlowerLinkTest(unittest.TestCase):
    """Four ranks through the host's memory: a flow's rate is a pair's, a port's that of one all-to-all of an earlier run."""

    LINKS = ROOT / "results" / "nvidia-h200-x4" / "2026-11-22-cp-links.jsonl"
    MACHINE = ROOT / "data" / "machines" / "h200-host-memory.json"

    def test_errors_through_the_host_s_memory(self):
        *cases, summary = simulate("--machine", str(self.MACHINE), "--against", str(self.LINKS))
        self.assertEqual(len(cases), 22)
        self.assertLessEqual(summary["errors"]["all"]["several ranks"]["mean"], 0.08)
        large = [(case["case"]["strategy"], case["case"]["direction"], case["case"]["seqlen"]) for case in cases if case["error"] > 0.20]
        # The executor then packed each range of rows by a launch of its own; since, a round has one (simulation.md).
        self.assertLessEqual(set(large), {("balanced", "forward", 32768)})
        self.assertEqual({choice["chosen"] for choice in summary["choices"]}, {"balanced"})
        self.assertEqual(max(choice["regret"] for choice in summary["choices"]), 0)

    def test_a_pair_s_rate_alone_makes_exchanges_with_several_ranks_too_slow(self):
        machine = json.loads(self.MACHINE.read_text())
        links = machine["links"]["nccl"]
        for rate in ("port_bytes_per_s", "interface_bytes_per_s"):
            links[rate] = links["flow_bytes_per_s"]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "machine.json"
            path.write_text(json.dumps(machine))
            *cases, summary = simulate("--machine", str(path), "--against", str(self.LINKS))
        self.assertLessEqual(summary["errors"]["all"]["several ranks"]["mean"], 0.13)
        for case in cases:
            if case["case"]["strategy"] in ("ulysses", "ring-allgather"):
                self.assertGreater(case["predicted_s"], 1.15 * case["measured_s"])


class ChoiceTest(unittest.TestCase):
    def test_strategies_compete_on_one_topology_and_transport(self):
        results = ROOT / "results" / "nvidia-h200-x4"
        files = [results / "2026-11-22-cp.jsonl", results / "2026-11-22-cp-links.jsonl"]
        machine = json.loads(Path(H200).read_text())
        nodes = json.loads((ROOT / "data" / "machines" / "h200-host-memory.json").read_text())
        machine["links"]["nccl"] = nodes["links"]["nccl"]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "machine.json"
            path.write_text(json.dumps(machine))
            *_, summary = simulate("--machine", str(path), "--against", *map(str, files))
        problems = [choice["problem"] for choice in summary["choices"]]
        self.assertEqual(sum(problem.endswith("4 ranks, threads") for problem in problems), 12)
        self.assertEqual(sum(problem.endswith("4 ranks of 4 nodes, nccl") for problem in problems), 4)
        self.assertEqual(len(problems), 16)

    def test_one_strategy_with_two_degrees_is_named_with_them(self):
        rows = []
        for ulysses, time_s in (("2", 1), ("4", 2)):
            [row] = simulate("usp", "--machine", H200, "--ranks", "8", "--ulysses", ulysses, *CAUSAL)
            row["parallel"]["sent_bytes"] = row["parallel"]["predicted_bytes"]
            rows.append(dict(row, type="case", run="0" * 16, time_s=time_s))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "results.jsonl"
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            *_, summary = simulate("--machine", H200, "--against", str(path))
        [choice] = summary["choices"]
        self.assertEqual(choice["best"], "usp, ulysses 2")
        self.assertRegex(choice["chosen"], "^usp, ulysses [24]$")


class SimulateTest(unittest.TestCase):
    def test_every_strategy_on_one_node_and_on_several(self):
        for strategy in STRATEGIES:
            for direction in ["forward", "backward"]:
                for machine, topology in ((H200, ["--ranks", "4"]), (NODES, ["--topology", "2x8", "--transport", "nccl"])):
                    with self.subTest(strategy=strategy, direction=direction, topology=topology):
                        [line] = simulate(strategy, "--machine", machine, *topology, *CAUSAL, "--direction", direction)
                        self.assertEqual(line["type"], "simulated")
                        self.assertEqual(line["machine"]["measured"], machine == H200)
                        ranks = line["parallel"]
                        self.assertAlmostEqual(max(ranks["rank_time_s"]), line["time_s"])
                        for i, time_s in enumerate(ranks["rank_time_s"]):
                            parts = sum(ranks[part][i] for part in ("compute_s", "exposed_s", "reorder_s", "merge_s"))
                            self.assertAlmostEqual(parts, time_s)

    def test_the_text_names_machine_time_path_and_ranks(self):
        result = run("simulate", "ring-p2p", "--machine", NODES, "--topology", "2x8", "--transport", "nccl", *CAUSAL)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("not measured", result.stdout)
        self.assertRegex(result.stdout, r"longest path .*compute .*transfers")
        self.assertRegex(result.stdout, r"\n +15 +\d")

    def test_the_band_is_the_time_with_faster_and_slower_links(self):
        one = ["ulysses", "--machine", NODES, "--topology", "2x8", "--transport", "nccl", *CAUSAL]
        [plain], [line] = simulate(*one), simulate(*one, "--band")
        self.assertIsNone(plain["interval_s"])
        self.assertEqual(line["time_s"], plain["time_s"])
        machine = json.loads(Path(NODES).read_text())
        for factor, end in ((1.25, 0), (0.75, 1)):
            changed = json.loads(json.dumps(machine))
            for links in changed["links"].values():
                for key, entry in links.items():
                    if key.endswith("bytes_per_s"):
                        entry["value"] *= factor
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "machine.json"
                path.write_text(json.dumps(changed))
                [other] = simulate(*[str(path) if each == NODES else each for each in one])
            self.assertAlmostEqual(line["interval_s"][end], other["time_s"])
        self.assertRegex(run("simulate", *one, "--band").stdout, r"band .* to .*, with links a quarter faster and slower")

    def test_shares_of_the_longest_path_are_those_of_its_own_mask(self):
        one = ["simulate", "ring-p2p", "--machine", H200, "--ranks", "4", "--mask", "causal_document", "--lengths", "long-mix",
               "--seqlen", "64K"]
        for masks, named in (("1", "longest path "), ("5", "longest path of mask 0: compute")):
            text = run(*one, "--masks", masks).stdout
            [path] = [line for line in text.splitlines() if "longest path" in line]
            self.assertIn(named, path)
            self.assertAlmostEqual(sum(float(share) for share in re.findall(r"\(([0-9.]+)%\)", path)), 100, delta=0.3)
            self.assertEqual("waits most for, of mask 0" in text, masks == "5")

    def test_a_timeline_has_a_track_for_each_rank_and_never_replaces_another_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "timeline.json"
            arguments = ["simulate", "balanced", "--machine", H200, "--ranks", "4", *CAUSAL, "--timeline", str(path)]
            self.assertEqual(run(*arguments).returncode, 0)
            self.assertEqual(run(*arguments).returncode, 0)  # its own kind is replaced
            events = json.loads(path.read_text())["traceEvents"]
            self.assertEqual({event["tid"] for event in events if event["ph"] == "X"}, {1, 2, 3, 4})
            begun = sum(event["ph"] == "b" for event in events)
            self.assertGreater(begun, 0)
            self.assertEqual(begun, sum(event["ph"] == "e" for event in events))
            path.write_text("mine")
            self.assertEqual(run(*arguments).returncode, 2)
            self.assertEqual(path.read_text(), "mine")

    def test_memory_over_time_is_that_of_the_rounds(self):
        [line] = simulate("ring-p2p", "--machine", H200, "--ranks", "4", *CAUSAL)
        memory, timeline = line["memory"], line["timeline"]
        for rank in range(4):
            steps = [(begin, size) for r, begin, size in zip(memory["rank"], memory["begin_s"], memory["bytes"]) if r == rank]
            self.assertEqual(len(steps), 4)  # rounds
            self.assertEqual(steps[0][0], 0)
            self.assertEqual([begin for begin, _ in steps], sorted(begin for begin, _ in steps))
            self.assertLessEqual(max(size for _, size in steps), line["parallel"]["held_bytes"][rank])
            spent = sum(end - begin for r, begin, end in zip(timeline["rank"], timeline["begin_s"], timeline["end_s"]) if r == rank)
            self.assertAlmostEqual(spent, line["parallel"]["rank_time_s"][rank])
        self.assertEqual(set(timeline["what"]), {"compute", "wait", "reorder", "merge"} & set(timeline["what"]))
        text = run("simulate", "ring-p2p", "--machine", H200, "--ranks", "4", *CAUSAL).stdout
        self.assertRegex(text, r"memory +at most .* in use, by rank \d in round \d, from ")

    def test_a_timeline_keeps_to_the_trace_event_format(self):
        """What ui.perfetto.dev asks of the events that are used here, by Chromium's description of the format."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "timeline.json"
            run("simulate", "balanced", "--machine", NODES, "--topology", "2x8", "--transport", "nccl", "--mask", "causal_document", "--lengths",
                "long-mix", "--seqlen", "64K", "--timeline", str(path))
            events = json.loads(path.read_text())["traceEvents"]
        needed = {"M": {"pid", "name", "args"}, "X": {"pid", "tid", "name", "ts", "dur"}, "C": {"pid", "name", "ts", "args"},
                  "b": {"cat", "id2", "pid", "tid", "name", "ts"}, "e": {"cat", "id2", "pid", "tid", "name", "ts"}}
        named, open_transfers, last = {}, {}, {}
        for event in events:
            self.assertLessEqual(needed[event["ph"]], set(event), event)
            if event["ph"] == "M":
                self.assertIn(event["name"], ("process_name", "thread_name"))
                named[event["pid"], event.get("tid")] = event["args"]["name"]
                self.assertNotIn(0, (event["pid"], event.get("tid")), "Perfetto's idle task")
            else:
                self.assertGreaterEqual(event["ts"], 0)
            if event["ph"] == "X":  # complete events of a track neither overlap, by a nanosecond, nor are out of order
                track = event["pid"], event["tid"]
                self.assertIn(track, named)
                begin, duration = round(1000 * event["ts"]), round(1000 * event["dur"])
                self.assertGreaterEqual(begin, last.get(track, 0))
                self.assertGreaterEqual(duration, 0)
                last[track] = begin + duration
            if event["ph"] == "C":
                self.assertTrue(all(isinstance(value, (int, float)) for value in event["args"].values()))
            if event["ph"] == "b":
                open_transfers[event["id2"]["local"]] = event["ts"]
            if event["ph"] == "e":
                self.assertGreaterEqual(event["ts"], open_transfers.pop(event["id2"]["local"]))
        self.assertEqual(open_transfers, {})
        self.assertEqual([named[pid, None] for pid in (1, 2, 3)], ["ranks", "transfers", "memory in use"])
        self.assertEqual(sum(event["ph"] == "C" for event in events) % 16, 0)

    def test_predictions_are_left_out_of_reports(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "results.jsonl"
            line = run("simulate", "usp", "--machine", H200, "--ranks", "4", *CAUSAL, "--json").stdout
            path.write_text(Path(FOUR).read_text() + line)
            result = run("report", str(path))
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("1 simulated case is left out", result.stderr + result.stdout)
            *cases, _ = simulate("--machine", H200, "--against", str(path))
            self.assertEqual(len(cases), 109)

    def test_every_machine_file_is_read(self):
        for path in sorted((ROOT / "data" / "machines").glob("*.json")):
            with self.subTest(path.name):
                machine = json.loads(path.read_text())
                [transport] = list(machine["links"])[:1]
                ranks = min(4, machine["gpus_per_node"])
                topology = "4x1" if ranks == 1 else f"1x{ranks}"
                [dtype] = next(iter(machine["kernels"].values()))["dtypes"][:1]
                [line] = simulate("ulysses", "--machine", str(path), "--topology", topology, "--transport", transport, "--dtype",
                                  dtype, *CAUSAL)
                self.assertGreater(line["time_s"], 0)

    def test_wrong_arguments_are_refused_in_one_line(self):
        one = ["--machine", H200, "--ranks", "4", *CAUSAL]
        cases = [([], "--machine"),
                 (["--machine", H200], "give a strategy"),
                 (["usp", "--against", FOUR, "--machine", H200], "leave out the strategy"),
                 (["--against", FOUR, "--machine", H200, "--kernel", "sm90"], "leave out --kernel"),
                 (["--against", FOUR, "--machine", H200, "--mask", "causal"], "leave out --mask"),
                 (["--against", FOUR, "--machine", H200, "--ulysses", "2"], "leave out --ulysses"),
                 (["--against", FOUR, "--machine", H200, "--timeline", "t.json"], "leave out --timeline"),
                 (["--against", FOUR, "--machine", H200, "--band"], "leave out --band"),
                 (["usp", *one, "--kernel", "fa9"], "only of sm90"),
                 (["usp", *one, "--dtype", "f32"], "is priced for bf16, f16 and head_dim 64, 128, 256"),
                 (["usp", *one, "--head-dim", "96"], "not for bf16 and head_dim 96"),
                 (["usp", *one, "--head-dim", "192", "--head-dim-v", "128"], "not for bf16 and head_dim 192 with head_dim_v 128"),
                 (["usp", *one, "--head-dim", "128", "--head-dim-v", "64"], "not for bf16 and head_dim 128 with head_dim_v 64"),
                 (["usp", *one, "--transport", "mpi"], "only for nccl, threads"),
                 (["usp", "--machine", H200, "--ranks", "16", *CAUSAL], "8 GPUs a node"),
                 (["usp", "--machine", H200, "--topology", "2x4", *CAUSAL], "no links between nodes"),
                 (["usp", "--machine", "/nowhere.json", "--ranks", "4", *CAUSAL], "/nowhere.json"),
                 (["usp", "--machine", FOUR, "--ranks", "4", *CAUSAL], FOUR)]
        for arguments, word in cases:
            with self.subTest(arguments):
                result = run("simulate", *arguments)
                self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
                self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
                self.assertIn(word, result.stderr)

    @staticmethod
    def changed(path, value):
        """The H200's machine file with one value set."""
        machine = json.loads(Path(H200).read_text())
        *parents, last = path.split(".")
        place = machine
        for key in parents:
            place = place[key]
        place[last] = value
        return json.dumps(machine)

    def test_misspelt_keys_of_machine_files_are_named(self):
        keys = ["clok", "clock.settle", "links.nccl.flow", "links.nccl.oversubscription", "kernels.sm90.unit",
                "kernels.sm90.forward.tile", "memory.operation_s.residul"]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "machine.json"
            for key in keys:
                with self.subTest(key):
                    path.write_text(self.changed(key, 1))
                    result = run("simulate", "usp", "--machine", str(path), "--ranks", "4", *CAUSAL)
                    self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
                    self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
                    self.assertIn(key + " is unknown", result.stderr)

    def test_wrong_machine_files_name_the_key(self):
        cases = [("clock.burst.value", -1), ("clock.burst.value", 101), ("clock.sustained.value", 1e18), ("clock.burst.value", "fast"), ("clock.burst.origin", "guessed"), ("clock.burst", 1),
                 ("kernels.sm90.dtypes", []), ("kernels.sm90.dtypes", [7]), ("kernels.sm90.dtypes", ["f9"]), ("kernels.sm90.head_dims", [1.5]),
                 ("kernels.sm90.forward.head_dim_factors", {"96": 1}), ("kernels.sm90.forward.head_dim_factors.64.value", 0),
                 ("gpus_per_node", 0), ("gpus_per_node", 1.5), ("name", 7), ("kernels", []), ("links.nccl.takes_rows", "no"),
                 ("kernels", {}), ("links", {}), ("name", ""), ("name", "a\x1bb"), ("kernels.", {}), ("links.a\nb", {}), ("links.threads.kernel_slowdown.value", 1), ("memory.bytes_per_s.value", 0)]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "machine.json"
            for key, value in cases:
                with self.subTest(key=key, value=value):
                    path.write_text(self.changed(key, value))
                    result = run("simulate", "usp", "--machine", str(path), "--ranks", "4", *CAUSAL)
                    self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
                    self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
                    self.assertIn(key.split(".")[1 if key.startswith("clock") else -1 if "." not in key else -2],
                                  result.stderr)


class HeadDimTest(unittest.TestCase):
    def test_a_factor_scales_what_is_computed(self):
        def compute_s(machine):
            [line] = simulate("ulysses", "--machine", machine, "--ranks", "4", *CAUSAL, "--head-dim", "64")
            return sum(line["parallel"]["compute_s"])

        machine = json.loads(Path(H200).read_text())
        factor = machine["kernels"]["sm90"]["forward"].pop("head_dim_factors")["64"]["value"]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "machine.json"
            path.write_text(json.dumps(machine))
            plain = compute_s(str(path))  # the clock falls as a pass computes, so longer ones take a little more
        self.assertGreaterEqual(compute_s(H200) / plain, factor - 1e-6)
        self.assertLess(compute_s(H200) / plain, 1.05 * factor)

    def test_factors_are_those_of_the_committed_results(self):
        results = [str(ROOT / "results" / "nvidia-h200" / f"2026-11-24-{name}")
                   for name in ("rivals.jsonl", "head-dim-64-runner.txt", "head-dim-256-192.txt")]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "machine.json"
            done = subprocess.run([sys.executable, str(ROOT / "tools" / "fit-machine"), "--program", os.environ["LONGSPAN_PROGRAM"], "--start", H200,
                                   "--out", str(path), "--head-dims", *results], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            fitted = json.loads(path.read_text())["kernels"]["sm90"]
        for direction in ("forward", "backward"):
            for head_dim, factor in json.loads(Path(H200).read_text())["kernels"]["sm90"][direction]["head_dim_factors"].items():
                self.assertAlmostEqual(fitted[direction]["head_dim_factors"][head_dim]["value"], factor["value"], places=3)
        left_out = [float(each) for each in re.findall(r"mask left out ([\d.]+) % on average", done.stdout)]
        self.assertEqual(len(left_out), 4)
        self.assertLess(max(left_out), 4)


class ScalingToolTest(unittest.TestCase):
    """tools/scaling, with a program that says what is given."""

    LINE = {"type": "simulated", "schema": 1, "status": "ok", "case": {"kernel": "sm90", "mask": "full", "options": {}, "seqlen": 1024, "heads_q": 8,
            "heads_kv": 8, "head_dim": 128, "dtype": "bf16", "direction": "forward", "masks": 1, "seed": 42, "ranks": 16, "strategy": "ring-p2p"}, "flops": 1.6e13, "time_s": 1.0, "interval_s": [0.5, 2.0], "flops_per_s_per_rank": 1e12,
            "parallel": {"ranks": 16, "compute_s": [1] * 16}, "machine": {"name": "m", "measured": False}}

    def scaling(self, folder, error, *arguments):
        program = Path(folder) / "program"
        program.write_text(f"""#!/bin/sh
            [ "$2" = ulysses ] && {{ echo 'longspan: {error}' >&2; exit 2; }}
            echo "$@" >> {folder}/calls
            echo '{json.dumps(self.LINE)}'""")
        program.chmod(0o755)
        return subprocess.run([sys.executable, str(ROOT / "tools" / "scaling"), "--program", str(program), "--machine", NODES, "--tokens",
                               "64", "--gpus", "16", "--masks", "full", "--directions", "forward", "--out", f"{folder}/out.jsonl", *arguments],
                              capture_output=True, text=True, timeout=600)

    def test_what_a_strategy_cannot_do_is_left_out_and_what_is_known_is_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            for repeated in range(2):
                done = self.scaling(folder, "ulysses needs at most as many ranks as query heads")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("| `ring-p2p` | 1 (0 to 2) |", done.stdout)
                self.assertNotIn("`ulysses`", done.stdout)
                lines = [json.loads(line) for line in Path(folder, "out.jsonl").read_text().splitlines()]
                self.assertEqual(len(lines), 3 + 2 * 2)
                self.assertEqual(len(Path(folder, "calls").read_text().splitlines()), 3 + 2 * 2)
                self.assertEqual(lines[0]["parallel"], {"ranks": 16})  # no lists by rank
            result = run("report", f"{folder}/out.jsonl")
            self.assertIn("7 simulated cases are left out", result.stdout + result.stderr)

    def test_another_failure_ends_it_with_the_message(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.scaling(folder, "the machine has no links")
            self.assertEqual(done.returncode, 1)
            self.assertIn("exit code 2\nlongspan: the machine has no links", done.stderr)

    def test_the_committed_predictions_are_drawn(self):
        lab = ROOT / "docs" / "lab" / "2026-11-scaling.jsonl"
        lines = [json.loads(line) for line in lab.read_text().splitlines()]
        self.assertEqual(len({line["command"] for line in lines}), len(lines))
        self.assertLessEqual({4, 8, 16, 32, 64, 96, 1024}, {line["case"]["ranks"] for line in lines})
        with tempfile.TemporaryDirectory() as folder:
            result = run("report", str(lab), FOUR, "-o", f"{folder}/page.html")
            self.assertEqual(result.returncode, 0, result.stderr)


if __name__ == "__main__":
    unittest.main()
