"""The program's help, version, lists, completion and manual page."""

import json
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from program import run

COMMANDS = [
    "mask", "plan", "simulate", "advise", "calibrate", "workload", "verify", "run", "report", "compare", "list", "completion"]


class HelpTest(unittest.TestCase):
    def test_the_program_alone_shows_its_help(self):
        result = run()
        self.assertEqual(result.returncode, 0)
        for command in COMMANDS:
            self.assertIn(f"\n  {command} ", result.stdout)

    def test_every_command_explains_itself_with_examples(self):
        for command in COMMANDS:
            with self.subTest(command):
                result = run(command, "--help")
                self.assertEqual(result.returncode, 0)
                self.assertIn(f"longspan {command}", result.stdout)
                self.assertIn("Examples:", result.stdout)

    def test_examples_use_commands_and_options_that_exist(self):
        helps = {command: run(command, "--help").stdout for command in COMMANDS}
        examples = [line for text in [run("--help").stdout, *helps.values()]
                    for line in text.split("Examples:")[1].splitlines() if line.startswith("  longspan ")]
        self.assertGreater(len(examples), len(COMMANDS))
        for line in examples:
            with self.subTest(line):
                words = shlex.split(line.strip().split("   ")[0], comments=True)[1:]
                self.assertIn(words[0], COMMANDS)
                for option in [word for word in words if word.startswith("-") and word != "-"]:
                    self.assertRegex(helps[words[0]], rf"[ ,]{option}\b")

    def test_version(self):
        result = run("--version")
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stdout, r"^longspan \d+\.\d+\.\d+")
        self.assertIn("fmt", result.stdout)


class ListTest(unittest.TestCase):
    def listed(self, what):
        result = run("list", what, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        text = run("list", what)
        self.assertEqual(text.returncode, 0)
        rows = json.loads(result.stdout)[what]
        for row in rows:
            self.assertIn(row["name"], text.stdout)
        return {row["name"]: row for row in rows}

    def test_kernels(self):
        kernels = self.listed("kernels")
        masks = set(self.listed("masks"))
        for name in ["cpu-naive", "cpu-flash"]:
            kernel = kernels[name]
            self.assertTrue(kernel["runs_here"], kernel["reason"])
            for direction in ["forward", "backward"]:
                features = kernel[direction]
                self.assertTrue(features["supported"])
                self.assertEqual(set(features["masks"]), masks)
                self.assertLessEqual({"f32", "bf16"}, set(features["dtypes"]))
                self.assertTrue(features["grouped"])
        self.assertEqual(kernels["cpu-flash"]["forward"]["head_dims"], list(range(8, 257, 8)))

    def test_kernels_that_cannot_run_here_say_why(self):
        for name, kernel in self.listed("kernels").items():
            with self.subTest(name):
                self.assertEqual(kernel["runs_here"], kernel["reason"] == "")

    def test_kernels_that_are_not_in_the_build_are_reported(self):
        for name, kernel in self.listed("kernels").items():
            with self.subTest(name):
                self.assertEqual(kernel["in_this_build"], "forward" in kernel)
                if kernel["in_this_build"]:
                    continue
                self.assertRegex(kernel["reason"], r"^not in this build \(no (CUDA|sm_\w+)\)$")
                for words in (["verify"], ["run", "--mask", "causal", "--seqlen", "1K"]):
                    result = run(*words, "--kernel", name)
                    self.assertEqual(result.returncode, 2)
                    self.assertIn(f"kernel '{name}' is {kernel['reason']}; configure with", result.stderr)

    def test_kernels_of_all_builds_are_listed(self):
        self.assertLessEqual({"cpu-naive", "cpu-flash", "gpu-naive", "sm90", "fa4", "vsa"}, set(self.listed("kernels")))

    def test_masks(self):
        masks = self.listed("masks")
        self.assertEqual(masks["causal"]["condition"], "j <= i")
        self.assertTrue(masks["uniform_block_sparse"]["block_sparse"])
        self.assertTrue(masks["causal_document"]["documents"])

    def test_devices(self):
        result = json.loads(run("list", "devices", "--json").stdout)
        cpu = result["devices"][0]
        self.assertEqual(cpu["kind"], "cpu")
        self.assertGreaterEqual(cpu["units"], 1)
        self.assertGreater(cpu["memory_bytes"], 0)
        has_cuda = any(device["kind"] == "cuda" for device in result["devices"])
        self.assertEqual(has_cuda, result["no_cuda_reason"] == "")

    def test_strategies(self):
        strategies = self.listed("strategies")
        self.assertIn("all-to-all", strategies["ulysses"]["description"])

    def test_suites(self):
        suites = self.listed("suites")
        self.assertLessEqual({"quick", "dense", "sparse"}, set(suites))
        # Every mask, both CPU kernels, forward and backward.
        self.assertGreaterEqual(suites["quick"]["cases"], 4 * len(self.listed("masks")))


class CompletionTest(unittest.TestCase):
    def complete(self, *words):
        """What bash offers after these words, the last of which is being typed."""
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / "completion"
            script.write_text(run("completion", "bash").stdout)
            command = ('source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _longspan; '
                       'printf "%s\\n" "${COMPREPLY[@]}"')
            result = subprocess.run(["bash", "-c", command, "bash", str(script), "longspan", *words],
                                    capture_output=True, text=True)
            self.assertEqual(result.stderr, "")
            return result.stdout.split()

    def test_commands(self):
        self.assertEqual(set(self.complete("")), set(COMMANDS))
        self.assertEqual(self.complete("ver"), ["verify"])

    def test_options_of_a_command(self):
        self.assertEqual(self.complete("run", "--kern"), ["--kernel"])
        self.assertIn("--json", self.complete("list", "--"))

    def test_values_of_an_option(self):
        self.assertEqual(self.complete("verify", "--mask", "share"), ["share_question"])
        self.assertEqual(self.complete("run", "quick", "--kernel", "cpu-naive,cpu-f"), ["cpu-naive,cpu-flash"])

    def test_positional_words(self):
        self.assertEqual(self.complete("mask", "inv"), [])
        self.assertEqual(self.complete("mask", "causal_d"), ["causal_document"])
        self.assertEqual(self.complete("list", "ker"), ["kernels"])
        self.assertEqual(self.complete("run", "qui"), ["quick"])
        self.assertEqual(self.complete("plan", "loong"), ["loongtrain"])
        self.assertEqual(self.complete("plan", "usp", "--placement", "cont"), ["context-first"])

    def test_files_are_left_to_the_shell(self):
        self.assertEqual(self.complete("report", "ou"), [])
        self.assertEqual(self.complete("run", "quick", "--out", "ou"), [])

    def test_other_shells_can_read_their_scripts(self):
        for shell in ["bash", "zsh", "fish"]:
            with self.subTest(shell):
                result = run("completion", shell)
                self.assertEqual(result.returncode, 0)
                if shutil.which(shell):
                    checked = subprocess.run([shell, "-n"], input=result.stdout, text=True, capture_output=True)
                    self.assertEqual((checked.returncode, checked.stderr), (0, ""))


class ManualTest(unittest.TestCase):
    def test_names_every_command_and_option(self):
        page = run("manual").stdout
        self.assertTrue(page.startswith(".TH LONGSPAN 1"))
        for command in COMMANDS:
            self.assertIn(f".SS longspan {command}\n", page)
        self.assertIn("\\fB\\-\\-fail\\-below\\fR", page)


class OutputTest(unittest.TestCase):
    def test_output_that_cannot_be_written_is_a_failure(self):
        result = run("list", "masks")
        self.assertEqual(result.returncode, 0)
        full = Path("/dev/full")
        if not full.exists():
            self.skipTest("no /dev/full")
        with full.open("w") as sink:
            result = subprocess.run([os.environ["LONGSPAN_PROGRAM"], "list", "masks"], stdout=sink, stderr=subprocess.PIPE,
                                    text=True)
        self.assertEqual(result.returncode, 1)
        self.assertIn("could not be written", result.stderr)


class CeilingTest(unittest.TestCase):
    @unittest.skipUnless(platform.machine() == "x86_64", "the name is of an x86 CPU")
    def test_names_the_code_that_openblas_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            result = run("run", "--kernel", "cpu-flash", "--mask", "full", "--seqlen", "64", "--direction", "fwd", "--out", folder,
                         env={"OPENBLAS_CORETYPE": "Nehalem"})
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("(OpenBLAS sgemm for Nehalem, ", result.stderr)


if __name__ == "__main__":
    unittest.main()
