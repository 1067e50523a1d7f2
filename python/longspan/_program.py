"""Starts the program `longspan` that is installed with the package, with this interpreter for its peers."""

import os
import pathlib
import sys


def main():
    package = pathlib.Path(__file__).parent
    program = package / "bin" / "longspan"
    os.environ.setdefault("LONGSPAN_PEERS", str(package / "peers"))
    os.environ.setdefault("LONGSPAN_PYTHON", sys.executable)
    try:
        os.execv(program, ["longspan", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"longspan: cannot start {program}: {error.strerror}")
