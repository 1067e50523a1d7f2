"""Files of results: what changes or removes them is noticed, and no output of a command replaces them."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from program import run

SYNTHETIC = str(Path(__file__).parents[1] / "browser" / "synthetic_results.py")
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

    def test_closed_standard_streams_do_not_reach_the_results(self):
        command = f"exec {shlex.join([os.environ['LONGSPAN_PROGRAM'], *RUN, '--out', str(self.out)])} <&- >&- 2>&-"
        code = subprocess.run(["sh", "-c", command], timeout=1200).returncode
        self.assertEqual(code, 1)  # the table could not be printed
        kinds = [json.loads(line)["type"] for line in self.results.read_text().splitlines()]
        self.assertEqual(kinds, ["run", "case", "case"])
        self.assertEqual(run("report", str(self.out)).returncode, 0)

    def test_progress_that_cannot_be_printed_does_not_end_the_run(self):
        with open("/dev/full", "w") as full:
            subprocess.run([os.environ["LONGSPAN_PROGRAM"], *RUN, "--out", str(self.out)], stdout=subprocess.DEVNULL,
                           stderr=full, timeout=1200)
        self.assertEqual(len(self.results.read_text().splitlines()), 3)

    def test_a_limit_of_file_size_is_an_error(self):
        limit = "ulimit -f 1; exec "  # in units of 512 bytes: less than a line
        command = limit + shlex.join([os.environ["LONGSPAN_PROGRAM"], *RUN, "--out", str(self.out)])
        result = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=1200)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("results.jsonl: cannot be written: File too large", result.stderr)
        self.assertEqual(self.results.read_text(), "")

    def lose(self, act):
        """The result of a run whose results file is lost as soon as it has its first line of a case."""
        slow = [*RUN, "--direction", "fwd,bwd"]
        slow[slow.index("causal,full")] = "dense"
        with subprocess.Popen([os.environ["LONGSPAN_PROGRAM"], *slow, "--out", str(self.out)], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            while process.poll() is None and not (self.results.exists() and self.results.read_text().count("\n") >= 2):
                time.sleep(0.002)
            act()
            out, error = process.communicate(timeout=1200)
        self.assertEqual(process.returncode, 1, out + error)
        return error

    def test_a_removed_file_ends_the_run(self):
        error = self.lose(lambda: shutil.rmtree(self.out))
        self.assertIn("results.jsonl: was removed during the run, and its lines with it; start the run again", error)

    def test_a_replaced_file_ends_the_run(self):
        def replace():
            (self.folder / "other").write_text("other")
            os.replace(self.folder / "other", self.results)
        self.assertIn("was removed during the run", self.lose(replace))
        self.assertEqual(self.results.read_text(), "other")

    def test_a_moved_folder_ends_the_run_and_can_be_moved_back(self):
        moved = self.folder / "moved"
        error = self.lose(lambda: self.out.rename(moved))
        self.assertIn(f"was moved during the run, to {moved}/results.jsonl; move it back", error)
        moved.rename(self.out)
        self.assertEqual(run("report", str(self.out)).returncode, 0)


class ManyRowsTest(unittest.TestCase):
    ROWS = 5000

    def test_table_page_and_comparison_of_many_rows(self):
        with tempfile.TemporaryDirectory() as folder:
            files = [os.path.join(folder, name) for name in ("a.jsonl", "b.jsonl")]
            for seed, file in enumerate(files):
                subprocess.run([sys.executable, SYNTHETIC, file, "--kind", "many", "--rows", str(self.ROWS), "--seed",
                                str(seed)], check=True)
            table = run("report", files[0]).stdout.splitlines()
            self.assertIn(f"{self.ROWS} measured, 0 skipped, 0 failed", table[2])
            self.assertEqual(sum(line.startswith(("sm90 ", "fa3 ", "flex ")) for line in table), self.ROWS)
            page = run("report", files[0], "-o", os.path.join(folder, "page.html"))
            self.assertIn(f"{self.ROWS} cases", page.stdout)
            comparison = json.loads(run("compare", *files, "--json").stdout)
            self.assertEqual(len(comparison["cases"]), self.ROWS)
            self.assertEqual(len({case["id"] for case in comparison["cases"]}), self.ROWS)
            for case in comparison["cases"]:
                low, high = case["interval"]
                self.assertTrue(low <= case["ratio"] <= high, case)


class OutputFilesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.results = self.folder / "results.jsonl"
        self.results.write_text('{"type":"run","schema":1,"run":"a"}\n')

    def refused(self, *arguments):
        before = {path: path.read_bytes() for path in self.folder.iterdir() if path.is_file()}
        result = run(*arguments)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertEqual(result.stdout, "")
        after = {path: path.read_bytes() for path in self.folder.iterdir() if path.is_file()}
        self.assertEqual(before, after)
        return result.stderr

    def test_a_page_replaces_only_a_page(self):
        page = self.folder / "page.html"
        report = ["report", str(self.folder), "-o"]
        for _ in range(2):
            self.assertEqual(run(*report, str(page)).returncode, 0)
            self.assertTrue(page.read_text().startswith("<!doctype html>"))
        for name in ("link", "twin"):
            getattr(os, {"link": "symlink", "twin": "link"}[name])(self.results, self.folder / name)
            self.assertIn("is an input, too", self.refused(*report, str(self.folder / name)))
        self.assertIn("is an input, too", self.refused(*report, str(self.results)))
        self.assertIn("is a folder", self.refused(*report, str(self.folder)))
        (self.folder / "notes.html").write_text("<!doctype html>\n<html>my own page</html>\n")
        self.assertIn("is not a page of `longspan report`", self.refused(*report, str(self.folder / "notes.html")))

    def test_a_page_on_standard_output(self):
        for target in ("/dev/stdout", "/dev/null"):
            self.assertEqual(run("report", str(self.folder), "-o", target).returncode, 0)
        piped = run("report", str(self.folder), "-o", "/dev/stdout")
        self.assertTrue(piped.stdout.startswith("<!doctype html>") and piped.stdout.endswith("</html>\n"))
        self.assertIn("0 cases", piped.stderr)
        with open(self.folder / "out.html", "w") as out:
            subprocess.run([os.environ["LONGSPAN_PROGRAM"], "report", str(self.folder), "-o", "/dev/stdout"], stdout=out,
                           stderr=subprocess.DEVNULL, check=True)
        self.assertEqual((self.folder / "out.html").read_text(), piped.stdout)

    def test_a_picture_replaces_only_a_picture(self):
        draw = ["mask", "causal", "--seqlen", "64", "--png"]
        for _ in range(2):
            self.assertEqual(run(*draw, str(self.folder / "mask.png")).returncode, 0)
        self.assertIn("is not a PNG", self.refused(*draw, str(self.results)))
        mask = self.folder / "mask.json"
        mask.write_text(run("mask", "causal", "--seqlen", "64", "--json").stdout)
        self.assertIn("is an input, too", self.refused("mask", str(mask), "--png", str(mask)))


if __name__ == "__main__":
    unittest.main()
