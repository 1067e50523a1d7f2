"""Files that no command reads to its harm: each is refused with one line that names the file and what is wrong, exit code
2, and within seconds, whatever its size, kind or nesting."""

import os
import tempfile
import unittest
from pathlib import Path

from program import run

H200 = str(Path(__file__).parents[2] / "data" / "machines" / "h200.json")
COMMANDS = {  # how each kind of file is given, and the most bytes that it may have
    "json": (lambda path: ["mask", path], 1 << 30),
    "toml": (lambda path: ["run", path, "--dry-run"], 1 << 20),
    "csv": (lambda path: ["mask", "full_document", "--seqlen", "1K", "--lengths", path], 64 << 20),
    "jsonl": (lambda path: ["report", path], 4 << 30),
    "workload": (lambda path: ["workload", path], 64 << 20),
    "nccl": (lambda path: ["calibrate", "--from", H200, "--nccl-tests", path, "--out", os.devnull], 16 << 20),
}
CASE = '[[case]]\nmask = "full"\nseqlen = "1K"\n'
DEEP = 100_000

# (name, content, part of the message)
CONTENTS = [
    ("lists.json", '{"seqlen": ' + "[" * DEEP, "nested more than"),
    ("objects.json", '{"a":' * DEEP, "nested more than"),
    ("closed.json", "[" * DEEP + "]" * DEEP, "nested more than"),
    ("nul.json", '{"seqlen": 8, "bands": []}\0', "NUL"),
    ("twice.json", '{"seqlen": 8, "seqlen": 9, "bands": []}', 'the key "seqlen" twice'),
    ("empty.json", "", "is not JSON"),
    ("lists.toml", "a = " + "[" * DEEP, "lists.toml:1"),
    ("tables.toml", "a = " + "{a=" * DEEP, "tables.toml:1"),
    ("keys.toml", CASE + "a." * DEEP + "a = 1", "keys.toml:4: a key of more than"),
    ("headers.toml", "[" + "a." * DEEP + "a]", "headers.toml:1: a key of more than"),
    ("nul.toml", CASE + "\0", "nul.toml:4"),
    ("twice.toml", CASE + 'mask = "full"\n', "twice.toml:4"),
    ("nul.csv", "512\n5\x0012\n", "nul.csv:2"),
    ("empty.csv", "", "holds no lengths"),
    ("lists.jsonl", "[" * DEEP + "\n", "lists.jsonl"),
    ("lists.workload", '{"type":' + "[" * DEEP, "lists.workload:1: "),
    ("nul.workload", "\0", "nul.workload:1: "),
    ("empty.workload", "", "holds no step"),
    ("columns.nccl", "# " + "x " * 2_000_000 + "busbw\n" + "1 2\n" * 2_000_000, "no table of nccl-tests"),
    ("time.nccl", "# " + "x " * 2_000_000 + "time busbw\n" + "1 2\n" * 2_000_000, "no table of nccl-tests"),
    ("infinite.nccl", "# time busbw\ninf inf\nnan nan\n1e300 1e300\n", "no table of nccl-tests"),
    ("empty.nccl", "", "no table of nccl-tests"),
    ("twice.jsonl", '{"schema":1,"schema":1}\n', "twice"),
]


class HostileFilesTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return str(Path(self.folder.name) / name)

    def refused(self, path, kind, *parts):
        result = run(*COMMANDS[kind][0](path))
        self.assertEqual(result.returncode, 2, (path, result.stderr[:500]))
        self.assertEqual(result.stdout, "")
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr[:500])
        for part in parts:
            self.assertIn(part, result.stderr[:2000])

    def test_contents(self):
        for name, content, part in CONTENTS:
            with self.subTest(name):
                Path(self.path(name)).write_text(content)
                self.refused(self.path(name), name.split(".")[1], part)

    def test_what_is_no_regular_file(self):
        for kind in COMMANDS:
            with self.subTest(kind):
                for device in ("zero", "full", "tty"):
                    link = self.path(f"{device}.{kind}")
                    os.symlink(f"/dev/{device}", link)
                    self.refused(link, kind, f"{device}.{kind}")
                os.mkfifo(self.path(f"pipe.{kind}"))
                self.refused(self.path(f"pipe.{kind}"), kind, "is a pipe")
                if kind != "jsonl":  # report takes folders
                    os.mkdir(self.path(f"folder.{kind}"))
                    self.refused(self.path(f"folder.{kind}"), kind, "is a folder")

    def test_what_is_too_large(self):
        for kind, (_, most) in COMMANDS.items():
            with self.subTest(kind):
                path = self.path(f"large.{kind}")
                with open(path, "wb") as file:
                    file.truncate(most + 1)
                self.refused(path, kind, f"has {most + 1} bytes", f"at most {most}")

    def test_names_are_escaped(self):
        for kind in COMMANDS:
            with self.subTest(kind):
                path = self.path(f"\x1b[31m\u202e\n.{kind}")
                self.refused(path, kind, "\\x1b[31m\\u202e .")
                self.refused(self.path("x" * 300 + "." + kind), kind, "x" * 300)


if __name__ == "__main__":
    unittest.main()
