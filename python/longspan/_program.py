"""Starts the program `longspan` that is installed with the package, with this interpreter for its peers."""

import os
import pathlib
import sys

_PACKAGE = pathlib.Path(__file__).parent
PROGRAM = _PACKAGE / "bin" / "longspan"


def environment():
    """The environment of the program: the package's peers, and this interpreter, unless the user has set others."""
    return {"LONGSPAN_PEERS": str(_PACKAGE / "peers"), "LONGSPAN_PYTHON": sys.executable, **os.environ}


def main():
    try:
        os.execve(PROGRAM, ["longspan", *sys.argv[1:]], environment())
    except OSError as error:
        sys.exit(f"longspan: cannot start {PROGRAM}: {error.strerror}")
