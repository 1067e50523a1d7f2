"""Runs the commands of README, the guides and the concepts, in their order, as a user of a machine without a GPU would: in a
folder with the checkout's data and the program. What takes long is stopped early; what cannot run here is listed with the reason."""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
DOCUMENTS = [SOURCE / "README.md", *sorted((SOURCE / "docs/guide").glob("*.md")), *sorted((SOURCE / "docs/concepts").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)

# Commands that do not run here: (what the command contains, why).
NOT_HERE = [
    ("scripts/", "installs packages; run by hand on a fresh root for each release"),
    ("cmake ", "install.consumer builds, installs and uses the library"),
    ("ctest ", "runs this test"),
    ("-m venv", "scripts/package makes one"),
    ("pip install", "scripts/package builds the wheel and installs it"),
    ("torchrun ", "tests/python runs processes of a group; several hosts are not here"),
    ("TORCH_DISABLE", "belongs to torchrun"),
    ("srun ", "needs Slurm"),
    ("openssl rand", "mpirun needs no token on one host"),
    ("longspan calibrate", "cli.calibrate runs it, for a minute and a half"),
    ("--peer mine.py", "the example is for a GPU"),
    ("--kernel flex", "a peer for GPUs"),
]
# GPU kernels: the command must be well formed, and its cases must expand, with the CPU kernel in their place.
GPU_KERNELS = re.compile(r"--kernel sm90\b")
# Suites with long cases: those of a few heads that the CPU runs in seconds.
SUITES = re.compile(r"longspan run (dense|sparse|cp)\b(?! --dry-run)( --filter '[^']*')?")
SMALL = {"dense": "seqlen<=1K kernel=cpu-flash", "sparse": "seqlen<=16K kernel=cpu-flash heads=4:4 density<=0.1",
         "cp": "seqlen<=16K kernel=cpu-flash mask=sliding_window_causal ranks=4"}
STOP_AFTER_S = 4


def commands(text):
    """(line, command) of the sh blocks, with continued lines joined and without comments."""
    for block in BLOCK.finditer(text):
        if block.group(1) != "sh":
            continue
        line = text.count("\n", 0, block.start()) + 2
        for command in block.group(2).replace("\\\n", "\0").split("\n"):
            words = " ".join(shlex.split(command.replace("\0", " "), comments=True, posix=False))
            if words:
                yield line, words
            line += 1 + command.count("\0")


def runnable(command):
    """The command as it can run here, within seconds."""
    command = SUITES.sub(lambda match: f"longspan run {match.group(1)} --filter '{SMALL[match.group(1)]}'", command)
    command = GPU_KERNELS.sub("--kernel cpu-flash --dry-run", command)
    command = command.replace(" --python ~/venv/bin/python", "")
    command = command.replace("/tmp/h200.json", "fitted.json")
    if "longspan run" in command and "--dry-run" not in command:
        command = re.sub(r" --stop-after \S+", "", command) + f" --stop-after {STOP_AFTER_S}s"
        if "--kernel cpu-" not in command and "--workload" not in command:
            command += " --allow-skipped"
    if "--strategy all" in command:
        command = re.sub(r"--seqlen \S+", "--seqlen 2K", command)
    if "longspan verify" in command:
        if "--mask" not in command:
            command += " --mask causal,share_question"  # CI verifies every mask in other tests
        command += " --allow-skipped"  # a peer whose package is not here
    if "--workload workload.jsonl" in command and "advise" in command:
        command = command.replace("--topology 4x8", "--topology 2x4")
    return command


class DocumentedCommands(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        program = Path(os.environ["LONGSPAN_PROGRAM"]).resolve()
        (cls.folder / "build").mkdir()
        (cls.folder / "build/longspan").symlink_to(program)
        for name in ("data", "results", "tools", "suites", "peers"):
            (cls.folder / name).symlink_to(SOURCE / name)
        (cls.folder / "bin").mkdir()
        (cls.folder / "bin/longspan").symlink_to(program)
        cls.environment = {
            **os.environ, "PATH": f"{cls.folder / 'bin'}:{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1",
            # mpirun in a container: as root, with more ranks than cores.
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}

    def run_command(self, command):
        mine, out = self.folder / "out/mine/results.jsonl", self.folder / "out"
        stop_after_s = STOP_AFTER_S
        while True:
            begin = time.monotonic()
            result = subprocess.run(["bash", "-c", command], cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=600)
            print(f"{time.monotonic() - begin:6.1f} s  {command}", flush=True)
            if result.returncode != 0 or "--out out/mine" not in command or not mine.exists() or '"type":"case"' in mine.read_text():
                break
            # So busy a machine that no case began in that time.
            stop_after_s *= 4
            command = re.sub(r" --stop-after \S+", f" --stop-after {stop_after_s}s", command.removesuffix(" --resume")) + " --resume"
        # Results of before and after a change, for commands that compare.
        for other in ("before", "after"):
            if mine.exists() and not (out / other).exists():
                shutil.copytree(mine.parent, out / other)
        return result

    def test_each_command_runs(self):
        ran = skipped = 0
        for document in DOCUMENTS:
            shutil.rmtree(self.folder / "out", ignore_errors=True)  # each document on its own
            for line, command in commands(document.read_text()):
                reason = next((why for what, why in NOT_HERE if what in command), None)
                if reason is None and command.startswith("mpirun") and not shutil.which("mpirun"):
                    reason = "no mpirun"
                if reason:
                    skipped += 1
                    print(f"     -    {command}: {reason}", flush=True)
                    continue
                with self.subTest(f"{document.relative_to(SOURCE)}:{line}: {command}"):
                    result = self.run_command(runnable(command))
                    ran += 1
                    self.assertEqual(result.returncode, 0, result.stdout[-2000:] + result.stderr[-2000:])
        self.assertGreater(ran, 40)
        print(f"{ran} commands ran, {skipped} did not")

    def test_commands_are_read_as_a_shell_reads_them(self):
        text = "```sh\na  b   # comment\nc \\\n   d 'e f'\n\n```\n```text\nno\n```\n"
        self.assertEqual(list(commands(text)), [(2, "a b"), (3, "c d 'e f'")])


if __name__ == "__main__":
    unittest.main()
