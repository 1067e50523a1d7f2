"""compare and --resume on results with failed, missing, repeated and broken records; the exit code must be right"""

import copy
import json
import os
import shutil

MASKS = ("full", "causal", "sliding_window", "share_question", "causal_document")
RUN_FACTS = {"type": "run", "schema": 1, "run": "1", "started": "2026-01-02T03:04:05Z", "command": "longspan run", "suite": "s",
             "machine": {}, "device": {"kind": "cpu", "name": "CPU"}, "software": {}, "rule": {}, "ceilings": {}}
BAD_BOUNDS = ("", " ", "nan", "inf", "-inf", "-0.9", "0", "1e999", "0.9.1", "0,9", "one", "0x1p0", "٠")


def record(mask, status, time_s):
    line = {"type": "case", "schema": 1, "run": "1", "id": mask, "status": status,
            "case": {"kernel": "k", "mask": mask, "seqlen": 1024, "heads_q": 1, "heads_kv": 1, "head_dim": 64, "dtype": "f32",
                     "direction": "forward"}}
    if status == "ok":
        return line | {"time_s": time_s}
    return line | {"reason": "for a reason"}


class Side:
    """A results file, and what a reader must find in it: the last record of each case, or None if it cannot be read."""

    def __init__(self, t, name):
        rng = t.random
        self.path = t.folder / name
        self.last = {}
        lines = [json.dumps(RUN_FACTS)]
        for _ in range(rng.choice((0, 1, 2, 4, 8))):
            mask, status = rng.choice(MASKS), rng.choice(("ok", "ok", "ok", "failed", "skipped"))
            time_s = rng.choice((1.0, 1.0, 2.0, 0.5))
            lines.append(json.dumps(record(mask, status, time_s)))
            self.last.pop(mask, None)
            self.last[mask] = time_s if status == "ok" else status
        self.spoil(rng, lines)

    def spoil(self, rng, lines):
        self.remove()
        text = "\n".join(lines) + "\n"
        defect = rng.choice(("none",) * 8 + ("empty", "missing", "folder", "garbage", "schema", "cut", "nul", "twice"))
        self.defect = defect
        if defect == "folder":
            (self.path / "results.jsonl").mkdir(parents=True)
        elif defect == "garbage":
            lines.insert(rng.randrange(len(lines) + 1), rng.choice(("{", "[]", "no json", '{"type": "case"}', "\x00")))
            text = "\n".join(lines) + "\n"
        elif defect == "schema":
            text = text.replace('"schema": 1', '"schema": 999', 1)
        elif defect == "nul":
            text = text.replace('"type"', '"ty\x00pe"', 1)
        elif defect == "empty":
            text, self.last = "", {}
        elif defect == "cut" and len(lines) > 1:  # the last record is lost; what came before it counts
            text = text[:-1 - rng.randint(1, len(lines[-1]) - 1)]
            self.last = {}
            for line in lines[1:-1]:
                line = json.loads(line)
                self.last[line["id"]] = line.get("time_s", line["status"])
        elif defect == "twice":
            text = text + "\n".join(lines[1:]) + "\n"
        if defect in ("folder", "missing", "garbage", "schema", "nul"):
            self.last = None
        if defect not in ("folder", "missing"):
            self.path.write_text(text)

    def remove(self):
        if self.path.is_dir():
            shutil.rmtree(self.path)
        else:
            self.path.unlink(missing_ok=True)


def expected(a, b, gate, allow_missing):
    """The exit code, and what standard error must name."""
    if not a or not b or not a.keys() & b.keys():
        return 2, []
    if gate is None:
        return 0, []
    measured = {mask: time_s for mask, time_s in a.items() if not isinstance(time_s, str)}
    lost = [mask for mask in measured if isinstance(b.get(mask, ""), str)]
    both = measured.keys() - set(lost)
    slower = [mask for mask in both if measured[mask] / b[mask] < gate]
    return int(bool(slower) or not both or (bool(lost) and not allow_missing)), [*lost, *slower]


def compare(t):
    a, b = Side(t, "a"), Side(t, "b")
    gate = t.random.choice((None, 0.9, 0.9, 0.6, 0.3, 3))
    words = [] if gate is None else ["--fail-below", gate]
    allow_missing = gate is not None and t.random.random() < 0.3
    words += ["--allow-missing"] * allow_missing + ["--json"] * (t.random.random() < 0.2)
    wanted, names = expected(a.last, b.last, gate, allow_missing)
    if t.random.random() < 0.1:
        words, wanted, names = ["--fail-below", t.random.choice(BAD_BOUNDS)], 2, []
    result = t.run("compare", a.path, b.path, *words)
    what = f"compare {a.last} ({a.defect}) with {b.last} ({b.defect}) {words}"
    missing = [name for name in names if name not in result.stderr]
    if result.returncode == wanted and missing:
        return what, f"{missing} not named: {result.stderr}"
    return what, t.fault(result, allowed=(wanted,))


class Resumed:
    """A real run of small cases, of which copies are edited and resumed."""

    def __init__(self, t):
        self.t, self.masks = t, MASKS[:3]
        self.words = ["run", "--kernel", "cpu-naive", "--mask", ",".join(self.masks), "--seqlen", "16", "--heads", "1:1",
                      "--head-dim", "8", "--warmup-s", "0", "--min-samples", "6", "--max-samples", "6"]
        done = t.run(*self.words, "--out", "whole")
        self.lines = []
        self.fault = t.fault(done, allowed=(0,))
        for line in (t.folder / "whole" / "results.jsonl").read_text().splitlines():
            line = json.loads(line)
            line.pop("crc32", None)  # of the line as it was
            self.lines.append(line)

    def attempt(self):
        rng = self.t.random
        out = self.t.folder / "resumed"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        lines, status = [], {}
        for line in self.lines:
            line = copy.deepcopy(line)
            if line["type"] == "case":
                state = rng.choice(("ok", "ok", "failed", "failed then ok", "missing"))
                if state == "missing":
                    continue
                failed = {key: line[key] for key in ("type", "schema", "run", "id", "case")} | {
                    "status": "failed", "reason": "of the test"}
                if state != "ok":
                    lines.append(failed)
                status[line["id"]] = "failed" if state == "failed" else "ok"
                if state == "failed":
                    continue
            lines.append(line)
        build = rng.choice((None, None, None, "build_id", "compiler", "longspan"))
        if build:
            lines[0]["software"][build] = "another"
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (out / "results.jsonl").write_text(text)
        keep, mix = rng.random() < 0.4, rng.random() < 0.3
        words = [*self.words, "--out", out, "--resume", *["--keep-failed"] * keep, *["--mix-builds"] * mix]
        variable = rng.choice((None, None, None, ("LONGSPAN_THREADS", "x"), ("LONGSPAN_PEERS", "/nowhere")))
        environment = os.environ | dict([variable] if variable else [])
        result = self.t.run(*words, env=environment)
        what = f"resume {sorted(status.values())}, another {build}, {words[-3:]}, {variable}"
        return what, self.judge(result, out, text, status, variable or (build and not mix), keep)

    def judge(self, result, out, text, status, refused, keep):
        after = (out / "results.jsonl").read_text()
        if refused:
            return self.t.fault(result, allowed=(2,)) or ("the file was changed" if after != text else None)
        failed = [id for id, state in status.items() if state == "failed"]
        if not after.startswith(text):
            return "earlier records were changed"
        added = [json.loads(line) for line in after[len(text):].splitlines()]
        ran = sorted(line["id"] for line in added if line["type"] == "case")
        due = sorted({line["id"] for line in self.lines if line["type"] == "case"} - status.keys() | set([] if keep else failed))
        if ran != due:
            return f"{ran} were run instead of {due}"
        return self.t.fault(result, allowed=(1 if keep and failed else 0,))


def attempts(t):
    resumed = Resumed(t)
    yield "a run of small cases", resumed.fault
    while True:
        for _ in range(10):
            yield compare(t)
        yield resumed.attempt()
