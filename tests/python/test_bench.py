"""Kernels of the user, measured by the program from Python."""

import json
import os
import subprocess
import sys

import pytest

import longspan
import registered_kernels  # noqa: F401  (registers its kernels)
from longspan import Mask, bench

QUICK = {"heads": (4, 2), "head_dim": 32, "warmup_s": 0, "min_samples": 6, "max_samples": 6, "budget_s": 0.1}
OK = ("ok", None)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Threads of several processes on few CPUs wait for one another."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("LONGSPAN_THREADS", "1")
        yield


def outcomes(results):
    """{(kernel, mask, direction): (status, reason)}; a mask file by its name."""
    return {(row["kernel"], row["mask"].split("/")[-1], row["direction"]): (row["status"], row["reason"]) for row in results}


def cases_of(results):
    lines = [json.loads(line) for line in results.path.read_text().splitlines()]
    return [line for line in lines if line["type"] == "case"]


def test_right_kernels_are_measured(tmp_path, capsys):
    masks = {"causal": Mask.causal(48), "heads": Mask.per_head([Mask.causal(48), Mask.window(48, 9, 3)])}
    results = bench.run(["cpu-flash", "right", "with-lse"], masks, direction=["fwd", "bwd"], out=tmp_path, **QUICK)
    assert results.path == tmp_path / "results.jsonl" and len(results) == 12
    assert "[12/12]" in capsys.readouterr().err
    refused = ("skipped", "supports only causal masks")
    for (kernel, mask, _), outcome in outcomes(results).items():
        assert outcome == (refused if kernel == "with-lse" and mask == "heads.json" else OK)
    for row in results:
        measured = row["status"] == "ok"
        assert (row["time_s"] is not None) == (row["error"] is not None and row["error"] < 1) == measured
    for case in cases_of(results):
        if case["status"] == "ok":
            assert case["accuracy"]["counting"] == "pass"
        if case["status"] == "ok" and case["case"]["kernel"] == "right":
            assert case["versions"].keys() == {"torch"} and case["measurements"][0]["plan_s"] > 0
    assert "with-lse" in str(results) and refused[1] in str(results)
    table = results._repr_html_()
    assert table.count("<tr>") == 13 and refused[1] in table
    assert "with-lse" in results.html(tmp_path / "page.html").read_text()


@pytest.mark.parametrize("kernel, direction, status, words", [
    ("wrong", "forward", "failed", "wrong result: o: error"),
    ("wrong", "backward", "failed", "wrong result: o: error"),
    ("wrong-gradient", "forward", "ok", ""),
    ("wrong-gradient", "backward", "failed", "wrong result: dq: error"),
    ("no-gradient", "forward", "ok", ""),
    ("no-gradient", "backward", "failed", "PyTorch cannot differentiate its result; give register() backward="),
    ("forward-only", "forward", "ok", ""),
    ("forward-only", "backward", "skipped", "has no backward pass"),
    ("transposed", "forward", "failed", "o must be like q, torch.float32 [48, 4, 32], not torch.float32 [4, 48, 32]"),
    ("raises", "forward", "failed", "no such tile"),
    ("never-says-why", "forward", "failed", "supports() returned False: must be None, or the reason"),
])
def test_each_kernel_ends_as_it_should(kernel, direction, status, words, wrong_kernels):
    row, = [row for row in wrong_kernels if (row["kernel"], row["direction"]) == (kernel, direction)]
    assert row["status"] == status and words in (row["reason"] or "")
    assert (row["time_s"] is None) == (status != "ok")


@pytest.fixture(scope="module")
def wrong_kernels(tmp_path_factory):
    kernels = ["wrong", "wrong-gradient", "no-gradient", "forward-only", "transposed", "raises", "never-says-why"]
    return bench.run(kernels, "causal", 48, direction=["fwd", "bwd"], out=tmp_path_factory.mktemp("wrong"), **QUICK)


def test_many_documents_other_dtypes_and_determinism(tmp_path):
    masks = {"documents": Mask.documents([1] * 2100), "square": Mask.from_dense(Mask.causal(20).to_dense()),
             "rectangle": Mask.from_cu_seqlens([0, 20], [0, 30], causal=True)}
    results = bench.run("right", masks, out=tmp_path, dtype=["bf16", "f32"], **(QUICK | {"heads": (1, 1)}))
    assert set(outcomes(results).values()) == {OK} and len(results) == 6
    results = bench.run(["right", "with-lse"], "causal", range(20, 22), deterministic=True, out=tmp_path / "same", **QUICK)
    told = outcomes(results)
    assert told["with-lse", "causal", "forward"] == OK and len(results) == 4
    assert told["right", "causal", "forward"] == ("skipped", "it is not known to give the same bits on every run")
    again = bench.run(["right", "with-lse"], "causal", range(20, 22), deterministic=True, out=tmp_path / "same", resume=True,
                      **QUICK)
    assert [row["time_s"] for row in again] == [row["time_s"] for row in results]
    assert list(bench.Results(tmp_path / "same")) == list(again)


def test_a_compiled_kernel_stays_compiled(tmp_path, capsys):
    results = bench.run("compiled", "causal", range(20, 30), out=tmp_path, **(QUICK | {"heads": (2, 2)}))
    assert set(outcomes(results).values()) == {OK} and len(results) == 10
    assert "this was not compiled" not in capsys.readouterr().err  # in the first worker, before a case was tried again


SCRIPT = """
import longspan, helper_of_script, package.kernels

@longspan.bench.register("scripted")
def scripted(problem, q, k, v):
    return helper_of_script.by_definition(problem, q, k, v)

for row in longspan.bench.run(["late", "scripted", "packaged"], "causal", 40, **{options}):
    print(row["status"], row["reason"])
print("the end")
"""
PACKAGED = """
import longspan
from .definition import right
longspan.bench.register("packaged")(right)
"""
GUARDED = """
if __name__ == "__main__":
    longspan.bench.register("late")(lambda problem, q, k, v: q)
"""


def test_a_script_needs_no_guard_but_registers_at_its_top(tmp_path):
    script = SCRIPT.format(options=QUICK)
    at = script.index("for row")
    (tmp_path / "script.py").write_text(script[:at] + GUARDED + script[at:])
    (tmp_path / "helper_of_script.py").write_text("from registered_kernels import right as by_definition\n")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "definition.py").write_text("from registered_kernels import right\n")
    (tmp_path / "package" / "kernels.py").write_text(PACKAGED)
    path = os.pathsep.join([os.environ["PYTHONPATH"], os.path.dirname(__file__)])
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=600,
                          env=os.environ | {"PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    late, scripted, packaged, _ = done.stdout.splitlines()
    assert "the end" not in done.stderr, "a worker went past run()"
    assert late.startswith("failed cannot be imported: RuntimeError: script.py does not register 'late' where it is imported; do "
                           "it at the top level, before run() and outside of if __name__ == '__main__'")
    assert scripted == packaged == "ok None"


@pytest.mark.parametrize("name, options, error, words", [
    ("My_Kernel", {}, ValueError, "lower-case letters, digits and single hyphens"),
    ("mine", {"device": "gpu"}, ValueError, "must be 'cpu' or 'cuda'"),
])
def test_mistakes_in_register(name, options, error, words):
    with pytest.raises(error, match=words):
        bench.register(name, **options)


@pytest.mark.parametrize("file", [{}, {"__file__": "<stdin>"}, {"__file__": "/no/such/mine.py"}, {"__file__": "notebook.ipy"}])
def test_a_notebook_is_told_what_to_do(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notebook.ipy").write_text("")
    cell = "import longspan\n@longspan.bench.register('mine')\ndef mine(problem, q, k, v): return q\n"
    with pytest.raises(RuntimeError, match="%%writefile mine.py, then: import mine"):
        exec(compile(cell, "<ipython-input-1>", "exec"), {"__name__": "__main__", **file})


@pytest.mark.parametrize("arguments, options, words", [
    (("nobody", "causal", 64), {}, "'nobody' is unknown.*forward-only"),
    (("rigth", "causal", 64), {}, "did you mean 'right'"),
    (("right", "causl", 64), {}, "did you mean 'causal'"),
    (("right", "causal"), {}, "--seqlen is missing"),
    (("right", "causal", 64), {"hedas": (4, 2)}, "did you mean --heads"),
    (("right", "causal", 64), {"window": (3, 4)}, "--window does not apply to causal"),
    (("right", "causal", 64), {"out": "."}, "results.jsonl exists"),
])
def test_mistakes_in_run(arguments, options, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if "out" in options:
        (tmp_path / "results.jsonl").write_text("{}\n")
    with pytest.raises(ValueError, match=words):
        bench.run(*arguments, **options)
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir()), "a refused run left something"


def test_results_of_no_file(tmp_path):
    with pytest.raises(ValueError, match="not a file of results"):
        bench.Results(tmp_path)
    (tmp_path / "results.jsonl").write_text("no json\n")
    with pytest.raises(ValueError, match="not a file of results"):
        longspan.bench.Results(tmp_path)
