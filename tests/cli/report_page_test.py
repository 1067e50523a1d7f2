#!/usr/bin/env python3
"""The page of a report, without a browser: its policy allows its own scripts and styles by their hashes alone, and no text of a
results file leaves its place.
"""
import os
import random
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "torture"))
import page  # noqa: E402

LONGSPAN = os.environ["LONGSPAN_PROGRAM"]
ATTEMPTS = 30


class Trial:
    """What attempts() needs of scripts/torture."""

    def __init__(self, folder):
        self.folder, self.random = folder, random.Random(1)

    def run(self, *arguments):
        return subprocess.run([LONGSPAN, *arguments], capture_output=True, text=True, timeout=120, check=False)

    def fault(self, result):
        return None if result.returncode in (0, 1, 2) else f"exit code {result.returncode}: {result.stderr[-300:]}"


class ReportPage(unittest.TestCase):
    def test_hostile_text_stays_in_its_place(self):
        with tempfile.TemporaryDirectory(prefix="longspan-page-") as folder:
            trial = Trial(folder)
            tried = 0
            for what, fault in page.attempts(trial):
                self.assertIsNone(fault, what)
                tried += 1
                if tried == ATTEMPTS:
                    break
            self.assertTrue(os.path.exists(os.path.join(folder, "page.html")))

    # The checks themselves fail where they should.
    def test_a_broken_page_is_a_fault(self):
        with tempfile.TemporaryDirectory(prefix="longspan-page-") as folder:
            next(page.attempts(Trial(folder)))
            with open(os.path.join(folder, "page.html"), encoding="utf-8", newline="") as file:
                text = file.read()
        self.assertIsNone(page.Page(text).fault())
        for wrong in (text.replace("</body>", "<script>alert(1)</script></body>"),
                      text.replace("<body>", "<body onload=\"alert(1)\">"),
                      text.replace("<body>", "<body style=\"color: red\">"),
                      text.replace("'use strict';", "'use strict'; ", 1),
                      text.replace("sha256-", "sha256-A", 1),
                      text.replace("default-src 'none'", "default-src *")):
            self.assertNotEqual(wrong, text)
            self.assertIsNotNone(page.Page(wrong).fault())


if __name__ == "__main__":
    unittest.main()
