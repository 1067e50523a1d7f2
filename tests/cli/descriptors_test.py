"""Every command with standard streams that are closed, full, or pipes that nobody reads, and with little memory, few files
and small files: it ends by itself with a documented exit code (docs/reference/limits.md), never by a signal."""

import json
import os
import resource
import subprocess
import tempfile
import unittest
from pathlib import Path

PROGRAM = os.environ["LONGSPAN_PROGRAM"]
CASE = ["--kernel", "cpu-flash", "--mask", "causal", "--seqlen", "64", "--heads", "1", "--head-dim", "16",
        "--min-samples", "6", "--max-samples", "6", "--budget-s", "0.01"]
MIB = 1 << 20


def limited(kind, value):
    return lambda: resource.setrlimit(kind, (value, value))


class DescriptorsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.results = str(Path(cls.folder.name) / "results")
        subprocess.run([PROGRAM, "run", *CASE, "--out", cls.results], check=True, capture_output=True, timeout=600)
        cls.commands = [
            [], ["--version"], ["list", "masks"], ["list", "devices", "--json"],
            ["mask", "full", "--seqlen", "1K", "--text"], ["mask", "causal_document", "--seqlen", "8K", "--json"],
            ["plan", "usp", "--ranks", "4", "--mask", "causal", "--seqlen", "1K"],
            ["verify", "--kernel", "cpu-flash", "--mask", "causal", "--seqlen", "65", "--dtype", "f32"],
            ["run", "quick", "--dry-run"], ["report", cls.results], ["compare", cls.results, cls.results],
            ["completion", "bash"]]

    def run_with(self, words, **how):
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how}
        return subprocess.run([PROGRAM, *words], timeout=300, text=True, **options)

    def test_closed_streams(self):
        for words in self.commands:
            for closed in ([0], [1], [2], [0, 1, 2]):
                with self.subTest(" ".join(words), closed=closed):
                    result = self.run_with(words, preexec_fn=lambda: [os.close(fd) for fd in closed])
                    self.assertEqual(result.returncode, 1 if 1 in closed else 0, result.stderr)
                    if 1 in closed and 2 not in closed:
                        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
                        self.assertIn("standard output could not be written", result.stderr)

    def test_full_streams(self):
        for words in self.commands:
            with self.subTest(" ".join(words)), open("/dev/full", "w") as full:
                result = self.run_with(words, stdout=full)
                self.assertEqual(result.returncode, 1, result.stderr)
                self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
                self.assertIn("standard output could not be written", result.stderr)
                self.assertEqual(self.run_with(words, stderr=full).returncode, 0)
                self.assertEqual(self.run_with(words, stdout=full, stderr=full).returncode, 1)
                self.assertEqual(self.run_with(["mask", "diagonal"], stderr=full).returncode, 2)

    def test_pipes_without_a_reader(self):
        for words in self.commands:
            with self.subTest(" ".join(words)):
                reader, writer = os.pipe()
                os.close(reader)
                result = self.run_with(words, stdout=writer)
                self.assertEqual(result.returncode, 1, result.stderr)
                self.assertIn("standard output could not be written", result.stderr)
                self.assertEqual(self.run_with(words, stderr=writer).returncode, 0)
                os.close(writer)

    def test_a_run_ends_and_keeps_its_results(self):
        for name, fd in (("stdout", 1), ("stderr", 2)):
            for how in ("closed", "full"):
                with self.subTest(name, how=how), open("/dev/full", "w") as full:
                    out = Path(self.folder.name) / f"{name}-{how}"
                    options = {"preexec_fn": lambda: os.close(fd)} if how == "closed" else {name: full}
                    result = self.run_with(["run", *CASE, "--out", str(out)], **options)
                    lost = name == "stdout" or how == "full"  # what it could not say is an error
                    self.assertEqual(result.returncode, 1 if lost else 0, result.stderr)
                    lines = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
                    self.assertEqual([line.get("status") for line in lines if line["type"] == "case"], ["ok"])

    # OpenBLAS waits for ever if it gets no memory, so an end is what is tested.
    def test_little_address_space(self):
        for words in self.commands[1:]:
            for mib in (60, 120, 300, 500):
                with self.subTest(" ".join(words), mib=mib):
                    result = self.run_with(words, preexec_fn=limited(resource.RLIMIT_AS, mib * MIB))
                    self.assertIn(result.returncode, (0, 1, 127), result.stderr)  # 127: the system's loader
                    if result.returncode == 1:
                        self.assertIn("out of memory", result.stderr + result.stdout)

    # Libraries and two buffers of OpenBLAS fit, on any number of CPUs: it starts no thread that takes a third one.
    def test_address_space_of_one_thread(self):
        result = self.run_with(["verify", "--kernel", "cpu-flash", "--mask", "causal", "--seqlen", "65", "--dtype", "f32"],
                               env={**os.environ, "LONGSPAN_THREADS": "1"}, preexec_fn=limited(resource.RLIMIT_AS, 440 * MIB))
        self.assertEqual(result.returncode, 0, result.stderr + result.stdout)

    # OpenBLAS's threads, for the ceiling, are the last to need memory: their stacks fit, or they do not.
    def test_a_run_with_little_address_space(self):
        for mib in range(480, 516, 4):
            with self.subTest(mib=mib), tempfile.TemporaryDirectory() as folder:
                result = self.run_with(["run", *CASE, "--out", str(Path(folder) / "out")],
                                       env={**os.environ, "LONGSPAN_THREADS": "2"}, preexec_fn=limited(resource.RLIMIT_AS, mib * MIB))
                self.assertIn(result.returncode, (0, 1), result.stderr)
                if result.returncode == 1:
                    self.assertIn("out of memory", result.stderr + result.stdout)

    def test_a_measurement_with_little_memory_fails_with_the_reason(self):
        for mib in (300, 500, 700):
            for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
                with self.subTest(mib=mib, kind=kind):
                    result = self.run_with(["verify", "--kernel", "cpu-naive", "--mask", "full", "--seqlen", "20K",
                                            "--heads", "1", "--dtype", "f32"], preexec_fn=limited(kind, mib * MIB))
                    self.assertEqual(result.returncode, 1, result.stderr)
                    self.assertIn("out of memory", result.stderr + result.stdout)

    def test_threads_that_cannot_be_started(self):
        result = subprocess.run([PROGRAM, "verify", "--kernel", "cpu-naive", "--mask", "full", "--seqlen", "64"],
                                timeout=300, text=True, capture_output=True, env={**os.environ, "LONGSPAN_THREADS": "4000"},
                                preexec_fn=limited(resource.RLIMIT_AS, 2000 * MIB))
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("cannot start a thread", result.stdout + result.stderr)
        self.assertIn("LONGSPAN_THREADS", result.stdout + result.stderr)

    def test_few_descriptors(self):
        for words in [*self.commands, ["run", *CASE, "--out", str(Path(self.folder.name) / "few")]]:
            for most in (3, 6, 12):
                with self.subTest(" ".join(words), most=most):
                    result = self.run_with(words, preexec_fn=limited(resource.RLIMIT_NOFILE, most))
                    self.assertIn(result.returncode, (0, 1, 2, 127), result.stderr)
                    if result.returncode != 0:
                        self.assertNotEqual(result.stderr + result.stdout, "")

    def test_small_files(self):
        folder = Path(self.folder.name)
        with open(folder / "listing", "w") as file:
            result = self.run_with(["list", "masks"], stdout=file, preexec_fn=limited(resource.RLIMIT_FSIZE, 100))
        self.assertEqual(result.returncode, 1)
        self.assertIn("standard output could not be written", result.stderr)
        result = self.run_with(["run", *CASE, "--out", str(folder / "small")],
                               preexec_fn=limited(resource.RLIMIT_FSIZE, 100))
        self.assertIn(result.returncode, (1, 2), result.stderr)
        self.assertIn("results.jsonl: cannot be written", result.stderr)


if __name__ == "__main__":
    unittest.main()
