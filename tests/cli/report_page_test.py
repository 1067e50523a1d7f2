#!/usr/bin/env python3
"""The checks of a report's page that the torture category `page` makes (tests/torture/page.py): they pass a page as it is written,
and find what would let a text of a results file run or change how the page looks.
"""
import os
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "torture"))
import page  # noqa: E402
from torture import Torture  # noqa: E402


class ReportPage(unittest.TestCase):
    def test_a_broken_page_is_a_fault(self):
        with tempfile.TemporaryDirectory(prefix="longspan-page-") as folder:
            what, fault = next(page.attempts(Torture(os.environ["LONGSPAN_PROGRAM"], folder, 1)))
            self.assertIsNone(fault, what)
            text = Path(folder, "page.html").read_text(encoding="utf-8")
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
