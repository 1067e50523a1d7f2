"""Checks design rules of the sources: dependencies between the folders of src/, no cyclic includes, third-party headers
only in the files that adapt them, a comment at the top of each file that says what it is for, and a limit on the length
of files. Prints each violation; exits with 1 if there is any."""

import re
import sys
from pathlib import Path

# The folders that each folder may include. docs/concepts/architecture.md: "Layout and direction of dependence".
ALLOWED = {
    "base": set(),
    "mask": {"base"},
    "attention": {"mask", "base"},
    "kernels": {"attention", "mask", "base"},
    "comm": {"base"},
    "cp": {"attention", "mask", "comm", "base"},
    "api": {"cp", "comm", "kernels", "attention", "mask", "base"},
    # The benchmark, a separate library on top of the folders above.
    "record": {"base"},
    "peers": {"attention", "mask", "base"},
    "bench": {"record", "cp", "attention", "mask", "comm", "base"},
    "report": {"record", "mask", "base"},
}
ALLOWED["cli"] = set(ALLOWED)

# The same between the subfolders of a folder.
ROOMS = {
    "cp/schedule": set(),
    "cp/strategies": {"cp/schedule"},
    "cp/execute": {"cp/schedule", "cp/strategies"},
    "cp/simulate": {"cp/schedule", "cp/execute"},
    "bench/spec": set(),
    "bench/measure": {"bench/spec"},
    "bench/simulate": {"bench/spec", "bench/measure"},
    "bench/case": {"bench/spec", "bench/measure"},
    "bench/calibrate": {"bench/spec", "bench/measure", "bench/case"},
    "bench/run": {"bench/spec", "bench/measure", "bench/case"},
}

# Third-party headers, and the files that may include them (paths below src/).
ADAPTERS = {
    r"mpi\.h": r"comm/.*mpi.*",
    r"nccl\.h": r"comm/.*nccl.*",
    r"sodium\.h": r"comm/sealed_channel\..*",
    r"nvml\.h": r"(base|bench)/.*nvml.*",
    r"(cuda|cublas|curand|nvrtc|cooperative_groups|cute|cutlass)\w*(_v2)?(\.h|/.*)": r".*(cuda|cublas|gpu|sm\d+|\.cuh?$).*",
    r"cblas\.h": r"(kernels/cpu|attention)/.*",
    r"hwy/.*": r"kernels/cpu/.*",
    r"CLI/.*": r"cli/.*",
    r"toml\+\+/.*": r"bench/.*|report/experiment_file\..*",
    r"png\.h": r"report/.*png.*",
    r"zlib\.h": r"record/.*",
    r"nlohmann/.*": r"(record|peers|bench|report|cli)/.*",
}

MAX_LINES = 650
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def violations(path, text):
    """The violations of the source at `path`, relative to src/: (line number, message) pairs."""
    folder = path.split("/")[0]
    lines = text.splitlines()
    if folder not in ALLOWED:
        yield 1, f"src/{folder} is not a folder of the design"
        return
    # The purpose of an implementation is in its header, which it includes first.
    implementation = not path.endswith((".h", ".cuh")) and lines and lines[0].startswith('#include "')
    if not implementation and not (lines and lines[0].startswith("//")):
        yield 1, "does not begin with a comment that says what the file is for"
    if len(lines) > MAX_LINES:
        yield len(lines), f"has {len(lines)} lines; split files above about 600 lines"
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quote, name = match.groups()
        if quote == '"' and "/" in name:
            target = name.split("/")[0]
            if target in ALLOWED and target != folder and target not in ALLOWED[folder]:
                yield number, f'{folder} may not depend on {target} (includes "{name}")'
            room, theirs = path.rsplit("/", 1)[0], name.rsplit("/", 1)[0]
            if room in ROOMS and theirs in ROOMS and theirs.split("/")[0] == folder and theirs not in ROOMS[room] | {room}:
                yield number, f'{room} may not depend on {theirs} (includes "{name}")'
        for header, adapter in ADAPTERS.items():
            if re.fullmatch(header, name) and not re.fullmatch(adapter, path):
                yield number, f"<{name}> may only be included by {adapter}"


# Units that may include one another, since they are one idea in two files: a table and its rows, an interface and its
# CUDA side, types and the only function that makes them.
ONE_IDEA = [
    {"attention/oracle/oracle", "attention/oracle/oracle_cuda"},
    {"cp/execute/parallel_kernel", "cp/execute/process_plan"},
    {"mask/patterns/block_sparse", "mask/patterns/patterns"},
]


def cycles(includes):
    """Groups of units that include one another, directly or indirectly. A unit is a header with its sources. `includes` maps
    each path without its suffix to the paths that any of its files includes."""
    found, number, low, stack, done = [], {}, {}, [], set()

    def visit(unit):
        number[unit] = low[unit] = len(number)
        stack.append(unit)
        for other in includes.get(unit, ()):
            if other not in number:
                visit(other)
                low[unit] = min(low[unit], low[other])
            elif other not in done:
                low[unit] = min(low[unit], number[other])
        if low[unit] == number[unit]:
            group = [stack.pop()]
            while group[-1] != unit:
                group.append(stack.pop())
            done.update(group)
            if len(group) > 1 and set(group) not in ONE_IDEA:
                found.append(sorted(group))

    for unit in sorted(includes):
        if unit not in number:
            visit(unit)
    return found


def main(root):
    count = found = 0
    source = Path(root) / "src"
    includes = {}
    for path in sorted(source.rglob("*")):
        if path.suffix not in {".h", ".cpp", ".cu", ".cuh"}:
            continue
        count += 1
        unit = path.relative_to(source).with_suffix("").as_posix()
        for match in filter(None, map(INCLUDE.match, path.read_text().splitlines())):
            other = match.group(2).rsplit(".", 1)[0]
            if match.group(1) == '"' and other != unit:
                includes.setdefault(unit, set()).add(other)
        for number, message in violations(path.relative_to(source).as_posix(), path.read_text()):
            found += 1
            print(f"{path.relative_to(root)}:{number}: {message}")
    for group in cycles(includes):
        found += 1
        print(f"src: these include one another: {', '.join(group)}")
    print(f"{count} sources, {found} violations")
    return 0 if count > 0 and found == 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
