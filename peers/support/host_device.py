"""The CPU: tensors in the runner's shared files, time, memory. For NumPy, and for PyTorch without a GPU."""

import ctypes
import math
import time

from support.adapter import Unsupported

LONGEST_ROW_S = 0.5  # the most time for the samples of one answer

SIZES = {"f32": 4, "f16": 2, "bf16": 2}


def _status_bytes(key):
    """`VmRSS` or `VmHWM` of this process."""
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
    return 0


class Tensors:
    """The tensors of a case: views of the shared files themselves."""

    def __init__(self, specs, view):
        for name in ("q", "k", "v", "o", "lse", "dout", "dq", "dk", "dv"):
            setattr(self, name, view(**specs[name]) if name in specs else None)

    def fetch(self):
        """Nothing is copied."""

    def store(self, results):
        for name, result in results.items():
            target = getattr(self, name)
            target[...] = result.reshape(target.shape)


class Host:
    torch_device = None

    def __init__(self, index, flush_bytes):
        self.where = (index, flush_bytes)
        self.other = ctypes.create_string_buffer(max(1, flush_bytes))

    def begin_case(self):
        pass

    forget_times = synchronize = begin_case

    def name(self):
        return "CPU"

    def allocated(self):
        return _status_bytes("VmRSS")

    def peak(self):
        return _status_bytes("VmHWM")

    def reset_peak(self):
        try:
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")  # reset the peak
        except OSError:
            pass

    def open_tensors(self, specs):
        return Tensors(specs, self.view)

    def memory_message(self, text):
        return f"out of memory ({text})"

    def times(self, work, cold, count, first=None):
        """Takes at most `count` samples, with the caches filled with other data before each."""
        times_s = []
        begin_s = time.perf_counter()
        while len(times_s) < count and (not times_s or time.perf_counter() - begin_s < LONGEST_ROW_S):
            if cold:
                ctypes.memset(self.other, len(times_s) % 256, len(self.other))
            start_s = time.perf_counter()
            work()
            times_s.append(time.perf_counter() - start_s)
        return times_s


class NumpyHost(Host):
    def view(self, file, shape, dtype):
        import numpy as np

        if dtype == "bf16":
            raise Unsupported("NumPy does not support bf16")
        return np.memmap(file, dtype={"f32": np.float32, "f16": np.float16}[dtype], mode="r+", shape=tuple(shape))


class TorchHost(Host):
    def __init__(self, index, flush_bytes):
        import torch

        super().__init__(index, flush_bytes)
        self.torch_device = torch.device("cpu")
        self.types = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}

    def view(self, file, shape, dtype):
        import torch

        mapped = torch.from_file(file, shared=True, size=SIZES[dtype] * math.prod(shape), dtype=torch.uint8)
        return mapped.view(self.types[dtype]).view(shape)
