"""Results as files: a changed line is named by every reader, and nothing is written over it."""

import re
import tempfile
import unittest
from pathlib import Path

from program import run

RUN = ["run", "--kernel", "cpu-flash", "--mask", "causal,full", "--seqlen", "128", "--heads", "2:1", "--head-dim", "32",
       "--warmup-s", "0", "--min-samples", "6", "--max-samples", "6", "--budget-s", "0.1"]


class ResultsFilesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.out = self.folder / "out"
        self.results = self.out / "results.jsonl"

    def measure(self):
        result = run(*RUN, "--out", str(self.out))
        self.assertEqual(result.returncode, 0, result.stderr)

    def assert_refused(self, result, *words):
        self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def test_a_changed_line_is_named_and_left_alone(self):
        self.measure()
        whole = self.results.read_text()
        lines = whole.splitlines(keepends=True)
        lines[1] = re.sub(r'"time_s":(\d)', lambda digit: f'"time_s":{9 - int(digit[1])}', lines[1], count=1)
        changed = "".join(lines)
        self.assertNotEqual(changed, whole)
        self.results.write_text(changed)
        out = str(self.out)
        for arguments in (["report", out], ["compare", out, out], [*RUN, "--out", out, "--resume"]):
            with self.subTest(arguments[0]):
                self.assert_refused(run(*arguments), "results.jsonl:2: ", "changed after it was written")
                self.assertEqual(self.results.read_text(), changed)
        # As the message says, a line without its checksum is used as it is.
        self.results.write_text(re.sub(r',"crc32":"\w{8}"', "", changed))
        for arguments in (["report", out], [*RUN, "--out", out, "--resume"]):
            result = run(*arguments)
            self.assertEqual(result.returncode, 0, result.stderr)


if __name__ == "__main__":
    unittest.main()
