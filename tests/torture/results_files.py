"""Results files changed at random, for report, compare and run --resume: an answer or one line, and nothing lost."""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "multi"))
import kill_resume  # noqa: E402

CASES = ["--kernel", "cpu-flash", "--mask", "full,causal", "--seqlen", "128", "--heads", "2:1", "--head-dim", "32",
         "--warmup-s", "0", "--min-samples", "6", "--max-samples", "6", "--budget-s", "0.1"]
VALUES = [None, True, -1, 0, 1e308, 1 << 63, "", "ok", "\x1b[31mred\n", "\u202e", [], {}, [[]] * 3, {"": None}, "x" * 5000]


def change_bytes(rng, data):
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 20))):
        at = rng.randrange(len(data))
        how = rng.randrange(4)
        if how == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif how == 1:
            del data[at:at + rng.choice((1, 10, 1000))]
        elif how == 2:
            data[at:at] = rng.choice((b"\0", b"\n", b"\r", b"\xff", b'"', b"{", b"[" * 10000, b"\x1b[2J", data[:rng.randrange(2000)]))
        else:
            data = data[:at]
        if not data:
            return b""
    return bytes(data)


def nodes(value):
    """Every (container, key) below a JSON value."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from nodes(value[key])


def change_values(rng, data):
    """Changes values of a line as a program would: the JSON and the checksum are valid, the meaning may not be."""
    lines = data.splitlines()
    at = rng.randrange(len(lines))
    line = json.loads(lines[at])
    line.pop("crc32")
    for _ in range(rng.choice((1, 1, 3))):
        places = list(nodes(line))
        if not places:
            break
        container, key = rng.choice(places)
        if rng.random() < 0.3:
            del container[key]
        else:
            container[key] = rng.choice(VALUES)
    text = json.dumps(line, separators=(",", ":"))
    if rng.random() < 0.7:
        text = kill_resume.sealed(text.encode()[:-1] + b',"crc32":""}').decode()
    lines[at] = text.encode()
    return b"\n".join(lines) + b"\n"


def change_lines(rng, data):
    lines = data.splitlines(keepends=True)
    how = rng.randrange(4)
    if how == 0:
        rng.shuffle(lines)
    elif how == 1:
        lines.pop(rng.randrange(len(lines)))
    elif how == 2:
        lines *= 2
    else:
        lines.insert(rng.randrange(len(lines) + 1), rng.choice((b"\n", b"null\n", b"notes\n", b'{"type":"later","schema":1}\n')))
    return b"".join(lines)


def attempts(t):
    whole = pathlib.Path(t.folder) / "whole"
    made = t.run("run", *CASES, "--out", str(whole))
    if made.returncode != 0:
        yield "a run to change", made.stderr
        return
    good = (whole / "results.jsonl").read_bytes()
    out = pathlib.Path(t.folder) / "changed"
    out.mkdir()
    results, page = out / "results.jsonl", pathlib.Path(t.folder) / "page.html"
    commands = {"report": ["report", str(out)], "page": ["report", str(out), "-o", str(page)],
                "compare": ["compare", str(whole), str(out)], "compare --json": ["compare", str(out), str(whole), "--json"],
                "resume": ["run", *CASES, "--out", str(out), "--resume"]}
    while True:
        change = t.random.choice((change_bytes, change_bytes, change_values, change_values, change_lines))
        data = change(t.random, good)
        name = t.random.choice(list(commands))
        results.write_bytes(data)
        result = t.run(*commands[name])
        fault = t.fault(result)
        after = results.read_bytes()
        if not fault and name != "resume" and after != data:
            fault = "the file was changed"
        # --resume may remove a last line that was cut short, and nothing else.
        if not fault and name == "resume" and not after.startswith(data[:data.rfind(b"\n") + 1]):
            fault = "lines were removed or altered"
        if not fault and name == "resume" and result.returncode == 2 and after != data:
            fault = "the file was changed by a run that was refused"
        yield f"{change.__name__}, {name}", fault
