"""The GPU through PyTorch: the runner's tensors, time, memory."""

import ctypes
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


def _blocking_stream():
    """A stream on which work for the default stream cannot be missed by a capture: it is an error there. PyTorch's own are not so."""
    handle = ctypes.c_void_p()
    torch.cuda.check_error(torch.cuda.cudart().cudaStreamCreate(ctypes.addressof(handle)))
    return torch.cuda.ExternalStream(handle.value)


class TorchDevice:
    def __init__(self, index, flush_bytes):
        if not torch.cuda.is_available():
            raise Unsupported(f"PyTorch {torch.__version__} sees no GPU")
        self.where = (index, flush_bytes)
        torch.cuda.set_device(index)
        self.torch_device = torch.device("cuda", index)
        self.flush = torch.empty(flush_bytes, dtype=torch.uint8, device=self.torch_device)
        self.memory = SharedMemory()
        self.recording = _blocking_stream()
        self.rows = RowTimer(
            lambda: torch.cuda.Event(enable_timing=True), self.flush.zero_,
            lambda time_s: torch.cuda._sleep(int(time_s * CYCLES_PER_S)), self.capture)

    def begin_case(self):
        self.synchronize()
        self.memory.close()
        self.forget_times()
        torch.cuda.empty_cache()

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
        self.rows.forget_recorded()
        self.memory.close()
        return Tensors(specs, self.torch_device, self.memory)

    def memory_message(self, text):
        """PyTorch's message in longspan's words: out of memory (needs X GiB, Y GiB free)."""
        free, _ = torch.cuda.mem_get_info()
        asked = re.search(r"Tried to allocate ([0-9.]+) (GiB|MiB|KiB)", text)
        needs = f"needs {asked.group(1)} {asked.group(2)}, " if asked else ""
        return f"out of memory ({needs}{free / 2**30:.2f} GiB free)"

    def times(self, work, cold, count, first=None):
        return self.rows.times(work, cold, count, first)

    def capture(self, work, first, cold, count):
        """A row of samples as a CUDA graph: see support/rows.py."""
        events = [[torch.cuda.Event(enable_timing=True, external=True) for _ in range(2)] for _ in range(count)]
        self.recording.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.recording):
            if first is not None:
                first()
            work()  # what a stream needs, libraries get on its first use
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.recording):
            for begin, end in events:
                if cold:
                    self.flush.zero_()
                begin.record()
                work()
                end.record()

        def replay():
            graph.replay()
            torch.cuda.current_stream().synchronize()
            return [begin.elapsed_time(end) * 1e-3 for begin, end in events]

        replay()  # the first one also loads the graph onto the device
        return replay
