"""scripts/peers lists what each environment pins, and refuses names that it does not know. Nothing is installed."""

import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
REQUIREMENTS = sorted((ROOT / "peers").glob("requirements-*.txt"))


def run(*arguments):
    return subprocess.run([ROOT / "scripts" / "peers", *arguments], capture_output=True, text=True, timeout=60)


class PeersScript(unittest.TestCase):
    def test_lists_every_environment_and_its_pins(self):
        listed = run("--list")
        self.assertEqual(listed.returncode, 0, listed.stderr)
        for file in REQUIREMENTS:
            with self.subTest(file.name):
                self.assertIn(f"{file.stem.removeprefix('requirements-')}\n", listed.stdout)
                for line in file.read_text().splitlines():
                    self.assertIn(f"  {line}\n", listed.stdout)

    def test_lists_the_environments_that_are_named(self):
        listed = run("--list", "fa3").stdout.splitlines()
        self.assertEqual([line for line in listed if not line.startswith(" ")], ["fa3"])

    def test_refuses_an_unknown_environment(self):
        refused = run("fa9")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("no environment 'fa9'; there are fa3", refused.stderr)

    def test_every_package_is_pinned(self):
        for file in REQUIREMENTS:
            for line in file.read_text().splitlines():
                if line and not line.startswith("#"):
                    with self.subTest(f"{file.name}: {line}"):
                        self.assertRegex(line, re.compile(r"^[\w-]+(\[\w+\])?==[\w.]+(; python_version (<|>=) \"3\.\d+\")?$"))


if __name__ == "__main__":
    unittest.main()
