#!/usr/bin/env python3
"""The built program is hardened (cmake/hardening.cmake) and holds no path of the machine that built it.
Usage: program_file_test.py [FOLDER...]: those whose paths it must not hold
"""
import os
import subprocess
import sys
import unittest
from pathlib import Path

PROGRAM = os.environ["LONGSPAN_PROGRAM"]
FOLDERS = sys.argv[1:]
del sys.argv[1:]


def readelf(*options):
    return subprocess.run(["readelf", "-W", *options, PROGRAM], capture_output=True, text=True, check=True).stdout


class ProgramFile(unittest.TestCase):
    def test_it_runs_at_any_address(self):
        self.assertRegex(readelf("-h"), r"Type:\s+DYN")
        self.assertRegex(readelf("-l"), r"INTERP")

    def test_its_tables_are_read_only(self):
        self.assertRegex(readelf("-l"), r"GNU_RELRO")
        self.assertRegex(readelf("-d"), r"BIND_NOW|FLAGS_1.*NOW")

    def test_its_stack_holds_no_code(self):
        self.assertRegex(readelf("-l"), r"GNU_STACK(\s+0x\w+){5}\s+RW\s")

    def test_overflows_are_checked(self):
        symbols = readelf("--dyn-syms")
        self.assertIn("__stack_chk_fail", symbols)
        self.assertRegex(symbols, r"__\w+_chk@")

    def test_it_holds_no_path_of_the_build(self):
        if not FOLDERS:
            self.skipTest("a build with CUDA names the kernels' files for profilers (-lineinfo)")
        content = Path(PROGRAM).read_bytes()
        for folder in FOLDERS:
            at = content.find(folder.encode())
            self.assertEqual(at, -1, content[max(at - 40, 0):at + 160])
        self.assertIn(b"src/attention/arguments.cpp", content)  # messages name files relative to the sources


if __name__ == "__main__":
    unittest.main()
