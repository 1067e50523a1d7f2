"""Runs the program under test: the path is in LONGSPAN_PROGRAM."""

import os
import subprocess


def run(*arguments, stdin="", env=None):
    return subprocess.run([os.environ["LONGSPAN_PROGRAM"], *arguments], input=stdin, capture_output=True,
                          text=True, timeout=1200, env={**os.environ, **(env or {})})
