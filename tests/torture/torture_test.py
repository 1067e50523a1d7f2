"""The driver of the torture finds what is wrong with a program that misbehaves."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import torture


class FaultTest(unittest.TestCase):
    def fault_of(self, script, allowed=(0, 1, 2)):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "program"
            program.write_text(f"#!/bin/sh\n{script}\n")
            os.chmod(program, 0o755)
            t = torture.Torture(program, folder, seed=1)
            return t.fault(t.run(), allowed)

    def test_good_ends(self):
        self.assertIsNone(self.fault_of("exit 0"))
        self.assertIsNone(self.fault_of("echo 'one case failed' >&2; exit 1"))
        self.assertIsNone(self.fault_of("echo 'bad value' >&2; exit 2"))

    def test_bad_ends(self):
        self.assertIn("signal 11", self.fault_of("kill -SEGV $$"))
        self.assertIn("exit code 3", self.fault_of("echo x >&2; exit 3"))
        self.assertIn("without a message", self.fault_of("exit 1"))
        self.assertIn("2 lines", self.fault_of("printf 'one\\ntwo\\n' >&2; exit 2"))
        self.assertIn("control character", self.fault_of("printf 'a\\033[2Jb\\n' >&2; exit 2"))
        self.assertIn("expected one of (0,)", self.fault_of("echo x >&2; exit 1", allowed=(0,)))


class DriverTest(unittest.TestCase):
    def test_unknown_category(self):
        result = subprocess.run(["python3", torture.__file__, "/bin/true", "no-such"], capture_output=True, text=True)
        self.assertEqual(result.returncode, 2)
        self.assertIn("unknown category 'no-such'", result.stderr)


if __name__ == "__main__":
    unittest.main()
