"""Long work ends soon after SIGINT or SIGTERM, and shows on a terminal what is being done, and only there."""

import os
import pty
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

PROGRAM = os.environ["LONGSPAN_PROGRAM"]
LONG = [
    ["plan", "ring-p2p", "--ranks", "2048", "--mask", "causal_document", "--seqlen", "1M"],
    ["verify", "--kernel", "cpu-naive", "--mask", "full", "--seqlen", "16K", "--dtype", "f32"],
    ["mask", "causal", "--seqlen", "2000M", "--tile", "128x16", "--text"],
]
RUN = ["run", "--kernel", "cpu-naive", "--mask", "full", "--seqlen", "8K", "--budget-s", "600", "--max-samples", "100000"]


def cpu_ticks(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def has_a_line(path):
    return path.exists() and path.stat().st_size > 0


class InterruptTest(unittest.TestCase):
    def ended(self, words, number, ready):
        """The exit code after the signal, sent once the program is `ready`."""
        process = subprocess.Popen([PROGRAM, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        while not ready(process.pid):
            self.assertIsNone(process.poll(), "it ended by itself")
            time.sleep(0.01)
        process.send_signal(number)
        return process.wait(timeout=120)

    def test_commands_end_by_the_signal(self):
        for words in LONG:
            for number in (signal.SIGINT, signal.SIGTERM):
                with self.subTest(" ".join(words), signal=number):
                    self.assertEqual(self.ended(words, number, lambda pid: cpu_ticks(pid) > 20), -number)

    def test_a_run_ends_with_130(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=number), tempfile.TemporaryDirectory() as folder:
                out = Path(folder) / "out"
                code = self.ended([*RUN, "--out", str(out)], number, lambda pid: has_a_line(out / "results.jsonl"))
                self.assertEqual(code, 130)

    def test_progress_is_for_terminals(self):
        words = ["plan", "usp", "--ranks", "4", "--mask", "causal", "--seqlen", "1K"]
        master, terminal = pty.openpty()
        result = subprocess.run([PROGRAM, *words], stdout=subprocess.PIPE, stderr=terminal, timeout=120)
        os.close(terminal)
        shown = os.read(master, 65536).decode()
        os.close(master)
        self.assertEqual(result.returncode, 0)
        self.assertIn("planning usp on 4 ranks", shown)
        self.assertTrue(shown.endswith("\r\x1b[K"), repr(shown))
        result = subprocess.run([PROGRAM, *words], capture_output=True, timeout=120)
        self.assertEqual(result.stderr, b"")


if __name__ == "__main__":
    unittest.main()
