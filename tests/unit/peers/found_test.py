#!/usr/bin/env python3
"""A peer is a file in a folder. The program finds a new file there and lists, verifies, measures and reports it, without a build.

usage: found_test.py LONGSPAN PEERS    (the program; peers/ of the sources)
"""
import ast
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import hostile_peer

HERE = pathlib.Path(__file__).resolve().parent


class Found(unittest.TestCase):
    def setUp(self):
        self.there = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.there.name, "peers")
        shutil.copytree(PEERS, self.folder, ignore=shutil.ignore_patterns("__pycache__"))

    def tearDown(self):
        self.there.cleanup()

    def add(self, *names):
        for name in names:
            shutil.copy(HERE / name, self.folder)

    def program(self, *words, status=0):
        environment = {
            "LONGSPAN_PEERS": str(self.folder), "LONGSPAN_PYTHON": sys.executable, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [PROGRAM, *words], capture_output=True, text=True, timeout=120, env=os.environ | environment)
        self.assertEqual(done.returncode, status, done.stderr + done.stdout)
        return done

    def listed(self):
        rows = json.loads(self.program("list", "kernels", "--json").stdout)["kernels"]
        return {row["name"]: row for row in rows}

    def test_each_file_is_a_kernel(self):
        before = self.listed()
        self.assertNotIn("fake", before)
        self.add("fake.py")
        after = self.listed()
        self.assertEqual(set(after) - set(before), {"fake"})
        fake = after["fake"]
        self.assertTrue(fake["runs_here"], fake["reason"])
        self.assertEqual((fake["device"], fake["claims"]), ("cpu", "forward"))
        self.assertEqual(fake["forward"]["dtypes"], ["f32"])
        self.assertEqual(fake["backward"]["reason"], "has no backward pass")
        os.remove(self.folder / "torch_fa2.py")
        self.assertNotIn("torch-fa2", self.listed())

    def test_a_kernel_for_blocks_alone_runs_here(self):
        self.add("fake.py", "block_only.py")
        row = self.listed()["block-only"]
        self.assertTrue(row["runs_here"], row["reason"])
        forward = row["forward"]
        self.assertEqual(forward["masks"], ["full", "block_causal_document", "uniform_block_sparse"])
        self.assertEqual(forward["block_sizes"], [128, 256])
        self.assertEqual((forward["dtypes"], forward["head_dims"]), (["bf16"], [64, 128]))
        text = self.program("list", "kernels").stdout
        self.assertIn("masks full block_causal_document uniform_block_sparse (blocks of 128 256)", text)

    def test_a_file_that_is_wrong_is_told_and_harms_no_other(self):
        (self.folder / "half_done.py").write_text("import torch\n")
        self.add("fake.py")
        rows = self.listed()
        self.assertIn("half_done.py: has no line that begins with PEER = {", rows["half-done"]["reason"])
        self.assertTrue(rows["fake"]["runs_here"])
        for words in (("verify",), ("run", "--mask", "causal", "--seqlen", "1K")):
            done = self.program(*words, "--kernel", "half-done", status=2)
            self.assertIn("half_done.py", done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1)

    def test_a_peer_may_not_take_the_name_of_an_own_kernel(self):
        shutil.copy(HERE / "fake.py", self.folder / "cpu_flash.py")
        self.assertIn("cpu-flash", self.program("list", "kernels", status=2).stderr)

    def test_without_the_folder_that_is_told(self):
        shutil.rmtree(self.folder)
        self.assertIn("set LONGSPAN_PEERS", self.program("list", "kernels").stdout)

    def test_the_folder_is_told(self):
        self.assertIn(f"The peers are those of {self.folder}.\n", self.program("list", "kernels").stdout)
        told = json.loads(self.program("list", "kernels", "--json").stdout)
        self.assertEqual((told["peers_folder"], told["peers_refusal"]), (str(self.folder), ""))

    def test_files_that_every_user_can_write_are_not_executed(self):
        self.add("fake.py")
        marker = pathlib.Path(self.there.name, "executed")
        with open(self.folder / "support" / "adapter.py", "a") as file:
            file.write(f"open({str(marker)!r}, 'w').close()\n")
        self.assertTrue(self.listed()["fake"]["runs_here"])
        self.assertTrue(marker.exists())
        marker.unlink()
        (self.folder / "support" / "adapter.py").chmod(0o666)
        fake = self.listed()["fake"]
        self.assertFalse(fake["runs_here"])
        self.assertRegex(fake["reason"], "may not be executed: .*/support/adapter.py can be written by every user: chmod o-w$")
        done = self.program("verify", "--kernel", "fake", status=2)
        self.assertIn("can be written by every user", done.stderr)
        self.assertFalse(marker.exists())

    def test_workers_take_modules_from_nowhere_else(self):
        self.add("fake.py")
        strange = pathlib.Path(self.there.name, "strange")
        strange.mkdir()
        marker = strange / "executed"
        for module in ("json", "gc", "support", "sitecustomize", "usercustomize"):
            (strange / f"{module}.py").write_text(f"open({str(marker)!r}, 'w').close()\n")
        variables = {"LONGSPAN_PEERS": str(self.folder), "LONGSPAN_PYTHON": sys.executable, "PYTHONPATH": f":{strange}",
                     "PYTHONUSERBASE": str(strange)}
        done = subprocess.run([PROGRAM, "list", "kernels", "--json"], capture_output=True, text=True, timeout=120, cwd=strange,
                              env=os.environ | variables)
        rows = {row["name"]: row for row in json.loads(done.stdout)["kernels"]}
        self.assertTrue(rows["fake"]["runs_here"], rows["fake"]["reason"])
        self.assertFalse(marker.exists())

    def test_modules_elsewhere_are_named_by_a_variable_of_longspan(self):
        (self.folder / "needy.py").write_text((HERE / "fake.py").read_text() + "\nimport longspan_test_module\n")
        there = pathlib.Path(self.there.name, "modules")
        there.mkdir()
        (there / "longspan_test_module.py").write_text("")
        for variables, runs in (({"PYTHONPATH": str(there)}, False), ({"LONGSPAN_PYTHONPATH": f"relative::{there}"}, True)):
            old = {name: os.environ.get(name) for name in variables}
            os.environ.update(variables)
            try:
                row = self.listed()["needy"]
            finally:
                for name, value in old.items():
                    os.environ.pop(name) if value is None else os.environ.update({name: value})
            self.assertEqual(row["runs_here"], runs, row["reason"])
            if not runs:
                self.assertIn("no module longspan_test_module (PYTHONPATH is not read; LONGSPAN_PYTHONPATH is)", row["reason"])

    def test_an_adapter_can_have_the_name_of_its_package(self):
        (self.folder / "twin.py").write_text((HERE / "fake.py").read_text() + "\nfrom twin.inside import VALUE\n")
        package = pathlib.Path(self.there.name, "modules", "twin")
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "inside.py").write_text("VALUE = 1\n")
        os.environ["LONGSPAN_PYTHONPATH"] = str(package.parent)
        try:
            row = self.listed()["twin"]
        finally:
            del os.environ["LONGSPAN_PYTHONPATH"]
        self.assertTrue(row["runs_here"], row["reason"])

    def test_a_wrong_answer_fails_its_case_and_no_other(self):
        self.add("fake.py")
        hostile_peer.folder_with(self.folder, PEERS, """
def spoil(worker, request, answer):
    lies = request["op"] == "run" and worker.length == 33
    return b"no json" + bytes([10]) if lies else answer
serve(spoil)""")
        done = self.program("verify", "--kernel", "fake", "--mask", "causal", "--seqlen", "32,33,34", "--heads", "2:1", "--head-dim", "8",
                            "--dtype", "f32", "--direction", "fwd", status=1)
        self.assertIn("answered 'no json'", done.stdout)
        self.assertIn("2 passed, 1 failed, 0 skipped", done.stdout)

    def test_a_file_elsewhere_is_a_peer_if_it_is_named(self):
        mine = pathlib.Path(self.there.name, "my_kernel.py")
        shutil.copy(HERE / "fake.py", mine)
        self.assertNotIn("my-kernel", self.listed())
        shape = ["--kernel", "my-kernel", "--mask", "causal", "--seqlen", "32", "--heads", "2:1", "--head-dim", "8"]
        verified = self.program("verify", "--peer", str(mine), *shape, "--dtype", "f32", "--direction", "fwd", "-v").stdout
        self.assertIn("1 passed, 0 failed", verified)
        repeat = f" --peer {os.path.relpath(mine)}"
        self.assertIn(repeat + "  o ", verified)
        os.environ["LONGSPAN_PEER_FILES"] = str(mine)
        try:
            self.assertTrue(self.listed()["my-kernel"]["runs_here"])
        finally:
            del os.environ["LONGSPAN_PEER_FILES"]
        out = pathlib.Path(self.there.name, "out")
        rule = ["--warmup-s", "0", "--min-samples", "6", "--max-samples", "6"]
        self.program("run", "--peer", str(mine), *shape, *rule, "--out", str(out))
        self.assertEqual(self.case_in(out)["status"], "ok")
        self.assertTrue(self.case_in(out)["command"].endswith(repeat), self.case_in(out)["command"])
        mine.write_text(mine.read_text() + "\nthis_is_not_defined\n")
        self.program("run", "--peer", str(mine), *shape, *rule, "--out", str(out) + "2", status=1)
        case = self.case_in(str(out) + "2")
        self.assertEqual(case["status"], "failed")
        self.assertIn("cannot be imported: NameError: name 'this_is_not_defined'", case["reason"])

    def case_in(self, folder):
        lines = [json.loads(line) for line in pathlib.Path(folder, "results.jsonl").read_text().splitlines()]
        case, = [line for line in lines if line["type"] == "case"]
        return case

    def test_what_is_wrong_with_a_named_file_is_told_at_once(self):
        mine = pathlib.Path(self.there.name, "my_kernel.py")

        def refusal(file):
            done = self.program("list", "kernels", "--peer", str(file), status=2)
            self.assertEqual((done.stdout, len(done.stderr.splitlines())), ("", 1))
            return done.stderr

        self.assertIn(f"{mine}: cannot be opened", refusal(mine))
        mine.write_text("import torch\n")
        self.assertIn("has no line that begins with PEER = {", refusal(mine))
        shutil.copy(HERE / "fake.py", mine)
        mine.chmod(0o666)
        self.assertIn(f"may not be executed: {mine} can be written by every user: chmod o-w", refusal(mine))
        mine.chmod(0o644)
        self.assertIn("must have no colon", refusal(pathlib.Path(self.there.name, "my:kernel.py")))
        text = pathlib.Path(shutil.copy(mine, self.there.name + "/my_kernel.txt"))
        self.assertIn("must end in .py", refusal(text))
        own = pathlib.Path(shutil.copy(mine, self.there.name + "/flex.py"))
        self.assertIn("a peer has the name of another kernel, 'flex'; rename its file", refusal(own))

    def test_a_peer_on_the_cpu_is_verified_and_measured(self):
        self.add("numpy_attention.py" if NUMPY else "fake.py")
        name, passes = ("numpy-attention", ["forward", "backward"]) if NUMPY else ("fake", ["forward"])
        shape = ["--kernel", name, "--mask", "causal,sliding_window,causal_document", "--seqlen", "96", "--head-dim", "16"]
        done = self.program("verify", *shape, "--lengths", "uniform:8:32", "--dtype", "f32", "--direction", ",".join(passes), "--table")
        self.assertRegex(done.stdout + done.stderr, r"[1-9]\d* passed, 0 failed, 0 skipped")
        out = pathlib.Path(self.there.name, "out")
        self.program("run", *shape, "--lengths", "uniform:8:32", "--heads", "4:2", "--dtype", "f32", "--direction", ",".join(passes),
                     "--warmup-s", "0", "--min-samples", "6", "--max-samples", "6", "--out", str(out))
        lines = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
        cases = [line for line in lines if line["type"] == "case"]
        self.assertEqual(len(cases), 3 * len(passes))
        for case in cases:
            self.assertEqual(case["status"], "ok", case.get("reason"))
            self.assertGreater(case["time_s"], 0)
            if NUMPY:
                self.assertIn("numpy", case["versions"])
        if NUMPY:
            row = self.listed()[name]
            self.assertEqual((row["description"], row["package"]), ("attention by its definition in NumPy", "numpy"))
            self.assertRegex(self.program("list", "kernels").stdout, r"numpy-attention: attention by .*\n  runs here  yes, .*\n  package    numpy\n")
            page = pathlib.Path(self.there.name, "page.html")
            self.program("report", str(out), "-o", str(page))
            self.assertIn('{"name":"numpy-attention","colour":"#d33682"}', page.read_text())


class Support(unittest.TestCase):
    def test_no_two_files_import_one_another(self):
        folder = pathlib.Path(PEERS)
        imports = {}
        for path in [*folder.glob("*.py"), *folder.glob("support/*.py")]:
            names = set()
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom) and node.module == "support":
                    names |= {"support." + alias.name for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("support."):
                    names.add(node.module)
            imports[".".join(path.relative_to(folder).with_suffix("").parts)] = names
        done = set()
        while ready := {name for name in imports if name not in done and imports[name] & imports.keys() <= done}:
            done |= ready
        self.assertEqual(set(imports) - done, set(), "these import one another in a circle")


if __name__ == "__main__":
    PROGRAM, PEERS = sys.argv[1:3]
    NUMPY = importlib.util.find_spec("numpy") is not None
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
