"""The GPU through PyTorch: the runner's tensors, time, memory."""

import ctypes
import re
import time

import torch

from support.adapter import Unsupported

QUEUED_S = 1e-3  # of launching that may wait behind a delay: more would fill the driver's queue
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}


class _Handle(ctypes.Structure):  # CUipcMemHandle
    _fields_ = [("bytes", ctypes.c_char * 64)]


class _Span:
    """Device memory that somebody else owns, as PyTorch accepts it."""

    def __init__(self, pointer, count):
        self.__cuda_array_interface__ = {"shape": (count,), "typestr": "|u1", "data": (pointer, False), "version": 3}


class _Memory:
    """The runner's allocations, opened through CUDA IPC for as long as they are bound."""

    def __init__(self):
        self.opened = {}
        self.cuda = ctypes.CDLL("libcuda.so.1")

    def open(self, handle):
        if handle not in self.opened:
            raw = _Handle()
            ctypes.memmove(ctypes.byref(raw), bytes.fromhex(handle), 64)
            pointer = ctypes.c_uint64()
            function = getattr(self.cuda, "cuIpcOpenMemHandle_v2")
            function.argtypes = [ctypes.POINTER(ctypes.c_uint64), _Handle, ctypes.c_uint]
            status = function(ctypes.byref(pointer), raw, 1)
            if status != 0:
                raise RuntimeError(f"cuIpcOpenMemHandle failed with error {status}")
            self.opened[handle] = pointer.value
        return self.opened[handle]

    def close(self):
        """The runner may free what it no longer binds, and the same handle may come back for other memory."""
        torch.cuda.synchronize()
        function = getattr(self.cuda, "cuIpcCloseMemHandle")
        function.argtypes = [ctypes.c_uint64]
        for pointer in self.opened.values():
            function(pointer)
        self.opened.clear()


class Tensors:
    """The tensors of a case. In shared device memory they are the runner's own; in a shared file they are copied."""

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
        self.memory = _Memory()
        self.events = []
        self.forget_times()
        self.cycles_per_s = 2.0e9  # of the gate; an upper bound of the clock

    def begin_case(self):
        self.memory.close()
        torch.cuda.empty_cache()
        self.forget_times()

    def forget_times(self):
        """Before other work is timed."""
        self.launch_s = self.work_s = 0.0  # of the last run: the host's time of launching, the device's time

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
        self.memory.close()
        return Tensors(specs, self.torch_device, self.memory)

    def memory_message(self, text):
        """PyTorch's message in longspan's words: out of memory (needs X GiB, Y GiB free)."""
        free, _ = torch.cuda.mem_get_info()
        asked = re.search(r"Tried to allocate ([0-9.]+) (GiB|MiB|KiB)", text)
        needs = f"needs {asked.group(1)} {asked.group(2)}, " if asked else ""
        return f"out of memory ({needs}{free / 2**30:.2f} GiB free)"

    def times(self, work, cold, count):
        """At most `count` samples in a row, by the rule of longspan's own stopwatch: L2 emptied before each by writing twice
        its size, events around the work, no rest between them so that the device stays loaded, and launches hidden: behind the
        work before them, or, where launching takes longer than the work, all of them behind a delay."""
        hides = self.work_s > 2 * self.launch_s
        if not hides:
            count = max(1, min(count, int(QUEUED_S / max(self.launch_s, 1e-6))))
        while len(self.events) < count:
            self.events.append([torch.cuda.Event(enable_timing=True) for _ in range(2)])
        if self.launch_s:
            queued = 1 if hides else count
            torch.cuda._sleep(int(min(1.5 * queued * self.launch_s + 50e-6, 0.1) * self.cycles_per_s))
        for begin, end in self.events[:count]:
            if cold:
                self.flush.zero_()
            begin.record()
            begin_s = time.perf_counter()
            work()
            self.launch_s = time.perf_counter() - begin_s
            end.record()
        self.events[count - 1][1].synchronize()
        times_s = [begin.elapsed_time(end) * 1e-3 for begin, end in self.events[:count]]
        self.work_s = times_s[-1]
        return times_s
