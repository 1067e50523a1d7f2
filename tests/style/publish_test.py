"""scripts/publish: what it writes of results, and that --check finds a number that differs from them."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
README = "# A project\n\n<!-- publish -->\nold\n<!-- end of what scripts/publish writes -->\n\nText.\n"


def run_line(run, commit, gpu="GPU-1"):
    return {"type": "run", "run": run, "started": "2026-11-24T12:00:00Z", "device": {"name": "NVIDIA H200", "uuid": gpu},
            "software": {"commit": commit, "dirty": False}, "ceilings": {"bf16": {"flops_per_s": 8e14}}}


def case_line(run, kernel, mask, rate, direction="forward", options=None, heads=(64, 8), converged=True, **other):
    case = {"kernel": kernel, "mask": mask, "seqlen": 32768, "heads_q": heads[0], "heads_kv": heads[1], "head_dim": 128,
            "dtype": "bf16", "direction": direction, "options": options or {}, "masks": 1, "seed": 42, "lengths": None, **other}
    return {"type": "case", "status": "ok", "run": run, "case": case, "flops_per_s": rate * 1e12, "time_s": 1e-3, "plan_s": 1e-4,
            "density": 1.0, "measurements": [{"converged": True}, {"converged": converged}], "versions": {} if kernel == "sm90" else {kernel: "1.0"}}


def page_with(subject):
    return f"# A kernel\n\n<!-- publish: {subject} -->\nold\n<!-- end of what scripts/publish writes -->\n\nText.\n"


class Publish(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        (self.root / "docs/reference").mkdir(parents=True)
        (self.root / "README.md").write_text(README)
        self.folder = self.root / "results/v1/gpu"
        self.folder.mkdir(parents=True)
        blocks = {"block": 128, "density": 0.2}
        self.write("dense.jsonl", [
            run_line("a", "1234567"),
            case_line("a", "sm90", "full", 700.4), case_line("a", "fa3", "full", 720), case_line("a", "fa4", "full", 690, converged=False),
            case_line("a", "sm90", "full", 610, "backward"), case_line("a", "fa4", "full", 600, "backward"),
            case_line("a", "sm90", "causal", 650), case_line("a", "portable", "causal", 660),
            case_line("a", "sm90", "uniform_block_sparse", 600, options=blocks, heads=(32, 4)),
            {"type": "case", "status": "skipped", "run": "a", "case": {}, "reason": "no"}])

    def write(self, name, lines):
        (self.folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))

    def publish(self, *arguments):
        command = [sys.executable, SOURCE / "scripts/publish", "--root", self.root, *arguments]
        return subprocess.run(command, capture_output=True, text=True)

    def published(self, *arguments):
        result = self.publish(self.folder / "dense.jsonl", *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return (self.root / "README.md").read_text(), (self.root / "docs/reference/rates.md").read_text()

    def test_tables_name_the_best_peer_of_each_pass(self):
        readme, rates = self.published()
        self.assertIn("the best of two peers", readme)
        self.assertIn("| `full` | 700 | 720 (`fa3`) | 610 | 600 (`fa4`) |", readme)
        self.assertIn("| `causal` | 650 | - | - | - |", readme)  # portable is no peer
        self.assertIn("| blocks of 128, density 0.2 (32K, 32:4 heads) | 600 | - | - | - |", readme)
        self.assertIn("[dense.jsonl](results/v1/gpu/dense.jsonl)", readme)
        flat = " ".join(readme.split())
        self.assertIn("ahead of every peer in 1 of 2 problems", flat)
        self.assertIn("Furthest behind: `full` forward, 32K tokens, 64:8 heads of 128, bf16, 3 % behind `fa3`.", flat)
        self.assertTrue(readme.startswith("# A project\n") and readme.endswith("Text.\n"))
        self.assertIn("build 1234567.", rates)
        self.assertIn("| `full`, 32K | 64:8 of 128 | forward | 700 | 720 (`fa3`) | 0.97 |", rates)
        self.assertIn("| `full` | 700 / 610 |  | 720 / - | 690~ / 600 |", rates)
        self.assertIn("fa3 1.0, fa4 1.0, portable 1.0", rates)

    def tables(self, subject, *lines):
        """The lines of the tables that a page of docs/ gets, from these cases of one run."""
        page = self.root / "docs" / "kernels" / "page.md"
        page.parent.mkdir(exist_ok=True)
        page.write_text(page_with(subject))
        self.write("dense.jsonl", [run_line("a", "1234567"), case_line("a", "sm90", "full", 1), *lines])
        self.published()
        text = page.read_text()
        self.assertTrue(text.startswith(f"# A kernel\n\n<!-- publish: {subject} -->\n") and text.endswith("writes -->\n\nText.\n"))
        self.assertIn("[dense.jsonl](../../results/v1/gpu/dense.jsonl)", text)
        self.assertNotIn("old", text)
        return [line for line in text.splitlines() if line.startswith("|") and not line.startswith("|---") or line.endswith(":")]

    def test_a_page_has_masks_by_length_beside_the_fastest_peer(self):
        case = lambda kernel, mask, tokens, rate, **other: case_line("a", kernel, mask, rate, "backward", seqlen=tokens, **other)
        lines = self.tables(
            "sm90 backward",
            case("sm90", "full", 4096, 606), case("fa3", "full", 4096, 500), case("fa4", "full", 4096, 600),
            case("sm90", "full", 32768, 635, converged=False), case("fa4", "full", 32768, 623, converged=False),
            case("sm90", "causal", 1024, 300), case("fa3", "causal", 1024, 400),  # no 4K
            case("sm90", "causal", 32768, 550), case("fa4", "causal", 32768, 500),
            case("sm90", "share_question", 4096, 320, lengths="pile"), case("portable", "share_question", 4096, 400, lengths="pile"),
            case("sm90", "causal_document", 4096, 230, lengths="pile"), case("sm90", "causal_document", 4096, 397, lengths="long-mix"),
            case("sm90", "causal", 8192, 1, deterministic=True))  # not of this table, so there is no 8K
        self.assertEqual(lines[:7], [
            "Backward, 64:8 heads of 128, bf16:",
            "| mask | peer | 1K | 4K | 32K |",
            "| `full` | fa4 |  | 606, 1.01 | 635~, 1.02~ |",
            "| `causal` |  | 300, 0.75 fa3 |  | 550, 1.10 fa4 |",
            "| `causal_document` |  |  | 230 |  |",
            "| `causal_document`, long-mix |  |  | 397 |  |",
            "| `share_question` |  |  | 320 |  |"])

    def test_a_page_has_other_shapes_and_blocks(self):
        blocks = lambda kernel, density, rate: case_line(
            "a", kernel, "uniform_block_sparse", rate, options={"block": 64, "density": density}, heads=(32, 4))
        lines = self.tables(
            "sm90 forward",
            case_line("a", "sm90", "causal", 600, heads=(32, 8)), case_line("a", "fa3", "causal", 500, heads=(32, 8)),
            case_line("a", "sm90", "sliding_window_causal", 400, heads=(32, 8), options={"window": [127, 0]}),
            case_line("a", "sm90", "causal", 580, deterministic=True),
            case_line("a", "sm90", "causal", 450, head_dim=192, head_dim_v=128, sinks=True),
            blocks("sm90", 0.1, 640), blocks("sm90", 0.5, 650), blocks("vsa", 0.5, 500), blocks("fa4", 0.5, 520))
        self.assertEqual(lines[3:], [
            "Forward, other shapes:",
            "| heads, head_dim | mask | peer | 32K |",
            "| 32:8, 128 | `causal` | fa3 | 600, 1.20 |",
            "|  | `sliding_window_causal`, window 127,0 |  | 400 |",
            "| 64:8, 128, same bits | `causal` |  | 580 |",
            "| 64:8, 192/128, sinks | `causal` |  | 450 |",
            "Forward, block-sparse masks, by density:",
            "| heads, head_dim | blocks | tokens | peer | 0.1 | 0.5 |",
            "| 32:4, 128 | uniform, 64 | 32K |  | 640 | 650, 1.25 fa4 |"])

    def test_a_page_has_both_passes_beside_the_peers_that_it_names(self):
        case = lambda kernel, mask, rate, direction="forward", **other: case_line("a", kernel, mask, rate, direction, **other)
        lines = self.tables(
            "portable forward, backward over torch-fa2, flex",
            case("portable", "full", 390), case("torch-fa2", "full", 300), case("flex", "full", 780, converged=False), case("fa4", "full", 800),
            case("portable", "share_question", 330), case("flex", "share_question", 300),
            case("portable", "causal", 320), case("fa4", "causal", 600),
            case("portable", "full", 320, "backward", converged=False), case("torch-fa2", "full", 320, "backward"))
        self.assertEqual(lines, [
            "Forward, 64:8 heads of 128, bf16:", "| mask | 32K |",
            "| `full` | 390, 1.30, 0.50~ |", "| `causal` | 320 |", "| `share_question` | 330, -, 1.10 |",
            "Backward, 64:8 heads of 128, bf16:", "| mask | 32K |", "| `full` | 320~, 1.00, - |"])

    def test_mistakes_in_a_page_are_one_line(self):
        page = self.root / "docs" / "page.md"
        for text, message in [(page_with("sm90 sideways"), "allowed are KERNEL forward"),
                              (page_with("flex forward"), "shows flex forward, and the files have no case of it"),
                              (page_with("sm90 forward").replace("<!-- end", "<!-- and"), "each block needs the lines")]:
            page.write_text(text)
            result = self.publish(self.folder / "dense.jsonl")
            self.assertEqual(result.returncode, 1)
            self.assertIn(message, result.stderr)
            self.assertNotIn("Traceback", result.stderr)
            self.assertEqual((self.root / "README.md").read_text(), README)
            self.assertEqual(page.read_text(), text)

    def test_a_peer_of_another_gpu_is_not_compared(self):
        lines = [json.loads(line) for line in (self.folder / "dense.jsonl").read_text().splitlines()]
        self.write("dense.jsonl", [*lines, run_line("b", "1234567", "GPU-2"), case_line("b", "fa4", "causal", 900)])
        readme, rates = self.published()
        self.assertIn("| `causal` | 650 | - |", readme)
        self.assertIn("900 / -", rates)  # listed all the same

    def test_check_finds_a_number_that_differs(self):
        page = self.root / "docs" / "page.md"
        page.write_text(page_with("sm90 forward"))
        self.published()
        self.assertEqual(self.publish("--check").returncode, 0)
        for path, number in [(self.root / "README.md", "720"), (self.root / "docs/reference/rates.md", "720"), (page, "700, 0.97")]:
            text = path.read_text()
            self.assertIn(number, text)
            path.write_text(text.replace(number, "721"))
            result = self.publish("--check")
            self.assertEqual(result.returncode, 1)
            self.assertIn(number, result.stdout)
            path.write_text(text)
        self.assertEqual(self.publish("--check").returncode, 0)

    def test_several_builds_are_refused_unless_asked_for(self):
        lines = [json.loads(line) for line in (self.folder / "dense.jsonl").read_text().splitlines()]
        self.write("dense.jsonl", [*lines, run_line("b", "7654321"), case_line("b", "fa4", "causal", 640)])
        result = self.publish(self.folder / "dense.jsonl")
        self.assertEqual(result.returncode, 1)
        self.assertIn("of 2 builds (1234567, 7654321)", result.stderr)
        self.assertEqual((self.root / "README.md").read_text(), README)
        self.assertIn("mix 2 builds", " ".join(self.published("--mix-builds")[1].split()))

    def test_mistakes_are_one_line(self):
        for arguments, message in [((self.root / "none.jsonl",), "no such file"), ((self.root / "docs",), "no such file"),
                                   ((), "give either results or --check"),
                                   ((self.folder / "dense.jsonl", "--check"), "give either results or --check")]:
            result = self.publish(*arguments)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(message, result.stderr)
            self.assertNotIn("Traceback", result.stderr)

    def test_the_documents_of_this_checkout_agree_with_their_files(self):
        result = subprocess.run([sys.executable, SOURCE / "scripts/publish", "--check"], capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    @unittest.skipUnless(os.environ.get("LONGSPAN_PROGRAM"), "needs the program")
    def test_a_folder_gets_its_page(self):
        source = next(path for path in (SOURCE / "results/nvidia-h200").glob("*-fa3.jsonl"))
        (self.folder / "dense.jsonl").unlink()
        (self.folder / "fa3").mkdir()
        shutil.copy(source, self.folder / "fa3/results.jsonl")
        result = self.publish(self.folder, "--mix-builds", "--program", os.environ["LONGSPAN_PROGRAM"])
        self.assertEqual(result.returncode, 0, result.stderr)
        page = (self.folder / "report.html").read_text()
        self.assertIn("fa3", page)
        self.assertIn("[fa3/results.jsonl](results/v1/gpu/fa3/results.jsonl)", (self.root / "README.md").read_text())


if __name__ == "__main__":
    unittest.main()
