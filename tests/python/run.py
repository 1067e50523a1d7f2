"""Runs one file of these tests with pytest. Exit code 77, with the reason, where PyTorch or pytest is absent."""

import pathlib
import sys


def main():
    try:
        import pytest
        import torch
    except ImportError as error:
        print(f"skipped: {sys.executable} has no {error.name}")
        return 77
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 10):
        print(f"skipped: PyTorch {torch.__version__} is older than 2.10")
        return 77
    folder = pathlib.Path(__file__).parent
    sys.path.insert(0, str(folder))
    return pytest.main(["-q", "-rs", "-p", "no:cacheprovider", "-W", "ignore::DeprecationWarning",
                        str(folder / sys.argv[1])])


if __name__ == "__main__":  # processes that tests start import this file
    sys.exit(main())
