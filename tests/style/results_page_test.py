"""docs/reference/results.md is what `longspan results-page` prints: results_page_test.py PROGRAM PAGE."""

import subprocess
import sys
from pathlib import Path


def main(program, page):
    printed = subprocess.run([program, "results-page"], check=True, capture_output=True, text=True).stdout
    if Path(page).read_text() == printed:
        return 0
    print(f"{page} is out of date; regenerate it: {program} results-page > {page}")
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
