"""Checks what the design asks of the sources: the directions of dependence between the folders of src/, that
third-party headers stay in the files that adapt them, that a file opens by saying what it is for, and that it
is short enough to hold one idea. Prints each violation; exits with 1 if there is any."""

import re
import sys
from pathlib import Path

# What each folder may include besides itself. docs/concepts/architecture.md: "Layout and direction of dependence".
ALLOWED = {
    "base": set(),
    "mask": {"base"},
    "attention": {"mask", "base"},
    "kernels": {"attention", "mask", "base"},
    "comm": {"base"},
    "cp": {"attention", "mask", "comm", "base"},
    "bench": {"cp", "attention", "mask", "comm", "base"},
    "report": {"base"},
}
ALLOWED["cli"] = set(ALLOWED)

# Third-party headers, and the files that may include them (paths below src/).
ADAPTERS = {
    r"mpi\.h": r"comm/.*mpi.*",
    r"nccl\.h": r"comm/.*nccl.*",
    r"cudnn.*": r"kernels/peers/.*",
    r"nvml\.h": r"(base|bench)/.*nvml.*",
    r"(cuda|cublas|curand|nvrtc|cooperative_groups|cute|cutlass)\w*(_v2)?(\.h|/.*)": r".*(cuda|cublas|gpu|sm\d+|\.cuh?$).*",
    r"cblas\.h": r"(kernels/cpu|bench|attention)/.*",
    r"hwy/.*": r"kernels/cpu/.*",
    r"CLI/.*": r"cli/.*",
    r"toml\+\+/.*": r"bench/.*",
    r"png\.h": r"(mask|report)/.*png.*",
}

MAX_LINES = 650
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def violations(path, text):
    """What is wrong with the source at `path`, relative to src/: (line number, message) pairs."""
    folder = path.split("/")[0]
    lines = text.splitlines()
    if folder not in ALLOWED:
        yield 1, f"src/{folder} is not a folder of the design"
        return
    # An implementation's purpose stands in its header, which it includes first.
    implementation = not path.endswith((".h", ".cuh")) and lines and lines[0].startswith('#include "')
    if not implementation and not (lines and lines[0].startswith("//")):
        yield 1, "does not begin with a comment that says what the file is for"
    if len(lines) > MAX_LINES:
        yield len(lines), f"has {len(lines)} lines; a file above some 600 is asking to be two"
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quote, name = match.groups()
        if quote == '"' and "/" in name:
            target = name.split("/")[0]
            if target in ALLOWED and target != folder and target not in ALLOWED[folder]:
                yield number, f'{folder} may not depend on {target} (includes "{name}")'
        for header, adapter in ADAPTERS.items():
            if re.fullmatch(header, name) and not re.fullmatch(adapter, path):
                yield number, f"<{name}> may be included by {adapter} alone"


def main(root):
    count = found = 0
    source = Path(root) / "src"
    for path in sorted(source.rglob("*")):
        if path.suffix not in {".h", ".cpp", ".cu", ".cuh"}:
            continue
        count += 1
        for number, message in violations(path.relative_to(source).as_posix(), path.read_text()):
            found += 1
            print(f"{path.relative_to(root)}:{number}: {message}")
    print(f"{count} sources, {found} violations")
    return 0 if count > 0 and found == 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
