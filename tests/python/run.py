"""Runs one file of these tests with pytest. Exit code 77, with the reason, where PyTorch or pytest is absent."""

import pathlib
import sys

try:
    import pytest
    import torch
except ImportError as error:
    print(f"skipped: {sys.executable} has no {error.name}")
    sys.exit(77)

if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 10):
    print(f"skipped: PyTorch {torch.__version__} is older than 2.10")
    sys.exit(77)
folder = pathlib.Path(__file__).parent
sys.path.insert(0, str(folder))
sys.exit(pytest.main(["-q", "-rs", "-p", "no:cacheprovider", "-W", "ignore::DeprecationWarning",
                      str(folder / sys.argv[1])]))
