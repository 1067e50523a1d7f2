"""The GPU through PyTorch: the runner's tensors, time, memory."""

import re

import torch

from support.adapter import Unsupported
from support.cuda_memory import SharedMemory
from support.rows import RowTimer

CYCLES_PER_S = 2.0e9  # an upper bound on the clock that torch.cuda._sleep counts
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}


class _Span:
    """Device memory owned by another process, in a form that PyTorch accepts."""

    def __init__(self, pointer, count):
        self.__cuda_array_interface__ = {"shape": (count,), "typestr": "|u1", "data": (pointer, False), "version": 3}


class Tensors:
    """The tensors of a case. Tensors in shared device memory are the runner's own; those in shared files are copied."""

    def __init__(self, specs, device, memory):
        self.files = {}
        for name in ("q", "k", "v", "o", "lse", "dout", "dq", "dk", "dv"):
            setattr(self, name, None)
        for name, spec in specs.items():
            shape, dtype = spec["shape"], DTYPES[spec["dtype"]]
            count = dtype.itemsize
            for extent in shape:
                count *= extent
            if "ipc" in spec:
                raw = torch.as_tensor(_Span(memory.open(spec["ipc"]) + spec["offset"], count), device=device)
                tensor = raw.view(dtype).view(shape)
            else:
                mapped = torch.from_file(spec["file"], shared=True, size=count, dtype=torch.uint8)
                self.files[name] = mapped.view(dtype).view(shape)
                tensor = torch.empty(shape, dtype=dtype, device=device)
            setattr(self, name, tensor)

    def fetch(self):
        for name in self.files.keys() & {"q", "k", "v", "dout"}:
            getattr(self, name).copy_(self.files[name])

    def store(self, results):
        for name, result in results.items():
            target = self.files[name] if name in self.files else getattr(self, name)
            target.copy_(result.reshape(target.shape))


class TorchDevice:
    def __init__(self, index, flush_bytes):
        if not torch.cuda.is_available():
            raise Unsupported(f"PyTorch {torch.__version__} sees no GPU")
        self.where = (index, flush_bytes)
        torch.cuda.set_device(index)
        self.torch_device = torch.device("cuda", index)
        self.flush = torch.empty(flush_bytes, dtype=torch.uint8, device=self.torch_device)
        self.memory = SharedMemory()
        self.rows = RowTimer(
            lambda: torch.cuda.Event(enable_timing=True), self.flush.zero_,
            lambda time_s: torch.cuda._sleep(int(time_s * CYCLES_PER_S)))

    def begin_case(self):
        self.synchronize()
        self.memory.close()
        torch.cuda.empty_cache()
        self.forget_times()

    def forget_times(self):
        self.rows.forget()

    def name(self):
        return torch.cuda.get_device_name(self.torch_device)

    def synchronize(self):
        torch.cuda.synchronize()

    def allocated(self):
        return torch.cuda.memory_allocated()

    def peak(self):
        return torch.cuda.max_memory_allocated()

    def reset_peak(self):
        torch.cuda.reset_peak_memory_stats()

    def open_tensors(self, specs):
        self.synchronize()
        self.memory.close()
        return Tensors(specs, self.torch_device, self.memory)

    def memory_message(self, text):
        """PyTorch's message in longspan's words: out of memory (needs X GiB, Y GiB free)."""
        free, _ = torch.cuda.mem_get_info()
        asked = re.search(r"Tried to allocate ([0-9.]+) (GiB|MiB|KiB)", text)
        needs = f"needs {asked.group(1)} {asked.group(2)}, " if asked else ""
        return f"out of memory ({needs}{free / 2**30:.2f} GiB free)"

    def times(self, work, cold, count):
        return self.rows.times(work, cold, count)
