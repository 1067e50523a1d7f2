"""Measure an attention kernel of your own beside Longspan's and its peers.

    import longspan

    @longspan.bench.register("mine")
    def mine(problem, q, k, v):          # [tokens, heads, head_dim]
        return my_attention(q, k, v, problem.mask, problem.scale)

    results = longspan.bench.run(["mine", "cpu-flash"], ["causal", "full"], [1024, 4096], direction=["fwd", "bwd"])
    results.html("out.html")

The program `longspan` that is installed with the package does the measuring. A number is its number: verified by its
oracles, timed by its rule, and recorded in its file of results.
"""

import dataclasses
import datetime
import html
import importlib
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

from longspan import _program
from longspan._mask import Mask

__all__ = ["Problem", "Results", "register", "run"]


@dataclasses.dataclass
class Problem:
    """What a registered kernel is asked to compute."""

    tokens_q: int
    tokens_kv: int
    heads_q: int
    heads_kv: int
    head_dim: int
    dtype: "torch.dtype"  # noqa: F821
    scale: float  # of the scores
    backward: bool  # the backward pass will be asked for, too
    deterministic: bool  # the same bits on every run are required
    mask: Mask  # [tokens_q, tokens_kv]; mask.heads is heads_kv if each KV head has its own, else 1
    device: "torch.device"  # noqa: F821
    plan: object = None  # what the kernel's plan(problem) returned


@dataclasses.dataclass
class _Kernel:
    """A registered kernel, and where a worker finds it: a module of a package by its name, any other by its file."""

    name: str
    function: object
    supports: object
    plan: object
    backward: object
    deterministic: bool
    device: str
    file: str
    module: str


_kernels = {}
_in_worker = False


class _Reached(BaseException):
    """A worker has reached the script's run(): all kernels before it are registered. Not an Exception, so that no
    script catches it."""


def register(name, *, supports=None, plan=None, backward=True, deterministic=False, device=None):
    """Registers a function as the kernel `name`, for run(). It is a decorator and returns the function unchanged.

    The function is called as function(problem, q, k, v) with a Problem and tensors q [tokens_q, heads_q, head_dim] and
    k, v [tokens_kv, heads_kv, head_dim], on problem.device. It returns o, like q; or (o, lse), lse float32 [heads_q,
    tokens_q], natural logarithm. Without lse, the worker computes one outside the timed region for the runner, and
    only o is proven.

    name: lower-case letters, digits and hyphens.
    supports: a function of the problem that returns None, or the reason why the kernel cannot compute it exactly. The
    case is then `skipped` with that reason.
    plan: a function of the problem for the work that is done once for a mask. It is timed as planning, and its result
    is problem.plan.
    backward: True if PyTorch's autograd differentiates the function; a function (problem, dout, q, k, v, o, lse) that
    returns (dq, dk, dv), lse None if the kernel returned none; or False.
    deterministic: whether the same bits come out on every run. Cases that require that are `skipped` otherwise.
    device: "cuda" or "cpu"; by default the GPU if there is one and this build of longspan has CUDA.

    A worker process imports the file that calls register(), so each kernel must be registered at the file's top level,
    before any call of run(). What follows that call is not executed there.

    Raises ValueError for a wrong name or device, and RuntimeError in a notebook or an interactive session, where there
    is no such file: write the cell to a file with %%writefile mine.py, then import mine.
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise ValueError(f"register({name!r}): the name must be of lower-case letters, digits and single hyphens, "
                         "such as 'my-kernel'")
    if device not in (None, "cpu", "cuda"):
        raise ValueError(f"register({name!r}): device {device!r} must be 'cpu' or 'cuda'")
    caller = sys._getframe(1).f_globals
    file, spec = caller.get("__file__"), caller.get("__spec__")
    if not file or not file.endswith(".py") or not os.path.isfile(file):
        raise RuntimeError(f"register({name!r}): a kernel runs in a process of its own, which reads it from a file "
                           "(.py), and a notebook or an interactive session has none; begin the cell with "
                           "%%writefile mine.py, then: import mine")

    def add(function):
        _kernels[name] = _Kernel(name, function, supports, plan, backward, deterministic, device, os.path.abspath(file),
                                 spec.name if spec and "." in spec.name else "")
        return function

    return add


def _load(name, module, file):
    """In a worker: the kernel, by importing what registers it."""
    global _in_worker
    _in_worker = True
    try:
        if module:
            importlib.import_module(module)
        else:
            spec = importlib.util.spec_from_file_location("longspan_kernels", file)
            sys.modules[spec.name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[spec.name])
    except (_Reached, SystemExit):
        pass
    if name not in _kernels:
        raise RuntimeError(f"{os.path.basename(file)} does not register '{name}' where it is imported; do it at the top "
                           "level, before run() and outside of if __name__ == '__main__'")
    return _kernels[name]


def _write_adapter(kernel, folder):
    """The file of a peer that is this kernel, for `longspan run --peer`."""
    device = kernel.device
    if device is None:
        import torch
        from longspan import _core
        device = "cuda" if _core.has_cuda() and torch.cuda.is_available() else "cpu"
    peer = {"description": f"registered by {os.path.basename(kernel.file)}", "framework": "torch", "package": "torch",
            "device": device, "passes": ["forward", "backward"] if kernel.backward else ["forward"]}
    # The interpreter knows its own folders; the script's and those of PYTHONPATH it must be told.
    own = tuple(os.path.join(prefix, "lib") for prefix in {sys.prefix, sys.base_prefix})
    folders = [os.path.abspath(path) for path in sys.path if not path.startswith(own)]
    path = folder / (kernel.name.replace("-", "_") + ".py")
    path.write_text(f'"""{kernel.name}: written by longspan.bench.run(). It can be used again: longspan run --peer FILE."""\n\n'
                    f"PEER = {json.dumps(peer, indent=4)}\n\nfrom support.registered import adapter\n\n"
                    f"Adapter = adapter({kernel.name!r}, {kernel.module!r}, {kernel.file!r}, {folders!r})\n", "utf-8")
    path.chmod(0o644)  # a file that every user can write is refused
    return str(path)


def _write_mask(mask, path):
    def bands(head):
        return [[*band[:4], None if band[4] == Mask.UNBOUNDED_BELOW else band[4],
                 None if band[5] == Mask.UNBOUNDED_ABOVE else band[5]] for band in mask.bands(head)]

    text = json.dumps({"rows": mask.shape[0], "columns": mask.shape[1],
                       "heads": [{"bands": bands(head)} for head in range(mask.heads)]})
    if path.exists() and path.read_text() != text:  # recorded commands name it
        raise ValueError(f"{path} is another mask: name the mask (masks={{name: mask}}), or take another folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def _list(values):
    return list(values) if isinstance(values, (list, range)) else [values]


def _words(option, values):
    """An option as on the command line."""
    word = "--" + option.replace("_", "-")
    if option == "dry_run":
        raise ValueError("dry_run: a run without results is one for the command line")
    if option in ("resume", "keep_failed", "mix_builds", "allow_skipped"):
        return [word] * bool(values)
    pair = ":" if option == "heads" else ","
    return [text for value in _list(values)
            for text in (word, pair.join(map(str, value)) if isinstance(value, tuple) else
                         str(value).lower() if isinstance(value, bool) else str(value))]


def _run_program(words, pythons=(), show=False):
    """(exit code, what it wrote to stderr); stderr is shown as it comes."""
    environment = _program.environment()
    pythons = dict.fromkeys([sys.executable, *pythons, *environment["LONGSPAN_PYTHON"].split(":")])
    environment["LONGSPAN_PYTHON"] = ":".join(filter(None, pythons))
    said = []
    try:
        process = subprocess.Popen([_program.PROGRAM, *words], env=environment, text=True, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE)
    except OSError as error:
        raise RuntimeError(f"cannot start {_program.PROGRAM}: {error.strerror}") from None
    with process:
        try:
            for line in process.stderr:
                said.append(line.strip())
                if show:
                    print(line, end="", file=sys.stderr)
        except BaseException:
            process.terminate()
            raise
    return process.returncode, said


def run(kernels, masks, lengths=None, *, out=None, python=None, quiet=False, **options):
    """Measures each kernel on each mask and length, and returns Results.

    kernels: a name or a list: of register(), or of `longspan list kernels`; "all" stands for all of this machine.
    masks: a name of a pattern, a Mask, the path of a mask file, or a list of these; or a dict of Masks by name. A Mask
    has its own length, and is written to the folder `out`.
    lengths: of sequences in tokens, such as 8192 or "8K", or a list. Not needed if there are only Masks.
    out: the folder of the results; by default a new one in out/. resume=True continues the run in it.
    python: interpreters for peers that this one lacks the packages of.
    quiet: print no progress.
    options: the other options of `longspan run`, with underscores: heads=(64, 8), head_dim=128, dtype="bf16",
    direction=["fwd", "bwd"], window=(1024, 0), budget_s=2. A list gives several values; every combination is a case, and an
    option of a pattern applies to the masks that have it. f32, heads 8:2 and the forward pass are the defaults.

    A case that fails or is skipped is a row of the results with its reason, not an exception.

    Raises ValueError for what the program refuses, with its message, and RuntimeError if it cannot run.
    """
    if _in_worker:
        raise _Reached
    masks = list(masks.items()) if isinstance(masks, dict) else [(f"mask-{i + 1}", m) for i, m in enumerate(_list(masks))]
    for name, _ in masks:
        if not name or set(name) & set("/,\\\0"):
            raise ValueError(f"mask {name!r}: a name must be a file's name without commas")
    words_of_options = [word for option, values in options.items() for word in _words(option, values)]
    folder = pathlib.Path(out or f"out/python-{datetime.datetime.now(datetime.timezone.utc):%Y%m%dT%H%M%S.%fZ}")
    new = not folder.exists()
    if (folder / "results.jsonl").exists() and not options.get("resume"):
        raise ValueError(f"{folder}/results.jsonl exists: take another folder, or resume=True")
    folder.mkdir(parents=True, exist_ok=True)
    words = ["run", "--out", str(folder), "--kernel", ",".join(_list(kernels))]
    for kernel in _kernels.values():  # all, so that the program's messages name them
        words += ["--peer", _write_adapter(kernel, folder)]
    for name, mask in masks:
        words += ["--mask", _write_mask(mask, folder / "masks" / f"{name}.json") if isinstance(mask, Mask) else str(mask)]
    if lengths is not None:
        words += ["--seqlen", ",".join(map(str, _list(lengths)))]
    words += words_of_options
    status, said = _run_program(words, map(str, _list(python or [])), show=not quiet)
    last = said[-1].removeprefix("longspan: ") if said else ""
    if status == 130:
        raise KeyboardInterrupt(last)
    if status == 2:
        if new:
            shutil.rmtree(folder)
        raise ValueError(last)
    if status not in (0, 1) or not (folder / "results.jsonl").exists():
        raise RuntimeError(f"{_program.PROGRAM} ended with {status}: {last}")
    return Results(folder / "results.jsonl")


_FIGURES = ("status", "reason", "time_s", "interval_s", "flops_per_s", "share_of_ceiling", "plan_s", "compile_s",
            "plan_bytes", "peak_bytes", "total_bytes")


def _row(line):
    case = dict(line["case"])
    first = {name: case.pop(name) for name in ("kernel", "mask", "seqlen", "direction")}
    options = case.pop("options", {})
    accuracy = line.get("accuracy") or {"max_error": {}, "tolerance": {}}
    shares = [float("nan") if error is None else error / accuracy["tolerance"][tensor]
              for tensor, error in accuracy["max_error"].items()]
    return {**first, **case, **{name: line.get(name) for name in _FIGURES}, "error": max(shares, default=None), **options}


class Results(list):
    """The cases of a file of results: a list of dicts, one for each case, so pandas.DataFrame(results) is a table.

    A row has the case (kernel, mask, seqlen, heads_q, heads_kv, head_dim, dtype, direction and the mask's options) and
    what came of it: status ("ok", "skipped" or "failed"), reason, time_s, interval_s, flops_per_s of visible work,
    share_of_ceiling, plan_s, compile_s, plan_bytes, peak_bytes, total_bytes, and error, the largest of any output
    over its tolerance. A figure that a case lacks is None. The file itself has every sample: docs/reference/results.md.

    print(results) prints the table of `longspan report`; a notebook shows one in HTML.
    """

    def __init__(self, path):
        """path: of a file of results, or of the folder that holds it. Raises ValueError if it cannot be read."""
        path = pathlib.Path(path)
        self.path = path / "results.jsonl" if path.is_dir() else path
        try:
            lines = [json.loads(line) for line in self.path.read_text().splitlines()]
        except (OSError, ValueError) as error:
            raise ValueError(f"{self.path}: not a file of results: {error}") from None
        cases = {line["id"]: line for line in lines if line.get("type") == "case"}  # the last line of a case counts
        super().__init__(map(_row, cases.values()))

    def html(self, path):
        """Writes the report as one self-contained page with charts and filters, and returns its path. In a notebook,
        IPython.display.IFrame(path, 1000, 800) shows it."""
        status, said = _run_program(["report", str(self.path), "-o", str(path)])
        if status != 0:
            raise ValueError(said[-1].removeprefix("longspan: ") if said else f"exit code {status}")
        return pathlib.Path(path)

    def __str__(self):
        return subprocess.run([_program.PROGRAM, "report", self.path], env=_program.environment(), text=True,
                              capture_output=True, check=True).stdout

    def _repr_html_(self):
        def cells(row):
            measured = row["status"] == "ok"
            yield from (row["kernel"], row["mask"], row["seqlen"], f"{row['heads_q']}:{row['heads_kv']}", row["head_dim"],
                        row["dtype"], row["direction"])
            yield f"{row['flops_per_s'] / 1e12:.3g}" if measured else row["status"]
            yield f"{row['time_s'] * 1e3:.4g}" if measured else row["reason"]

        def line(tag, texts):
            return "<tr>" + "".join(f"<{tag}>{html.escape(str(text))}</{tag}>" for text in texts) + "</tr>"

        head = line("th", ("kernel", "mask", "seqlen", "heads", "head_dim", "dtype", "direction", "TFLOP/s", "time, ms"))
        return f"<table>{head}{''.join(line('td', cells(row)) for row in self)}</table>"
