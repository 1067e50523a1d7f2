"""The GPU through PaddlePaddle: the runner's tensors, time, memory. The counterpart of support/torch_device.py."""

import re

import numpy as np
import paddle

from support.adapter import Unsupported
from support.cuda_memory import SharedMemory, capsule_of
from support.rows import RowTimer

TYPES = {"bf16": (paddle.bfloat16, 2), "f16": (paddle.float16, 2), "f32": (paddle.float32, 4)}


class Tensors:
    """Views of the runner's device memory; tensors in shared files are copied."""

    def __init__(self, specs, memory, index):
        self.files = {}
        for name in ("q", "k", "v", "o", "lse", "dout", "dq", "dk", "dv"):
            setattr(self, name, None)
        for name, spec in specs.items():
            dtype, size = TYPES[spec["dtype"]]
            if "ipc" in spec:
                pointer = memory.open(spec["ipc"]) + spec["offset"]
                tensor = paddle.utils.dlpack.from_dlpack(capsule_of(pointer, spec["shape"], spec["dtype"], index))
            else:
                bits = np.memmap(spec["file"], dtype=f"u{size}", mode="r+", shape=tuple(spec["shape"]))
                self.files[name] = bits
                tensor = paddle.empty(spec["shape"], dtype=dtype)
            setattr(self, name, tensor)

    def fetch(self):
        for name in self.files.keys() & {"q", "k", "v", "dout"}:
            tensor = getattr(self, name)
            kind = "int16" if self.files[name].itemsize == 2 else "int32"
            tensor.copy_(paddle.to_tensor(self.files[name].view(kind)).view(tensor.dtype), True)

    def store(self, results):
        for name, result in results.items():
            target = getattr(self, name)
            result = result.reshape(target.shape).astype(target.dtype)
            if name in self.files:
                kind = "int16" if self.files[name].itemsize == 2 else "int32"
                self.files[name][...] = result.contiguous().view(kind).numpy().view(self.files[name].dtype)
            else:
                target.copy_(result, True)


class PaddleDevice:
    torch_device = None

    def __init__(self, index, flush_bytes):
        if not paddle.is_compiled_with_cuda() or paddle.device.cuda.device_count() == 0:
            raise Unsupported(f"PaddlePaddle {paddle.__version__} sees no GPU")
        self.where = (index, flush_bytes)
        paddle.set_device(f"gpu:{index}")
        self.flush = paddle.empty([flush_bytes], dtype="uint8")
        self.memory = SharedMemory()
        self.rows = RowTimer(lambda: paddle.device.cuda.Event(enable_timing=True), self.flush.zero_, self.delay)

    def delay(self, time_s):
        """PaddlePaddle has no kernel that only waits, so this writes memory, which is bounded by the memory bandwidth."""
        bytes_per_s = 6e12
        for _ in range(int(time_s * bytes_per_s / self.where[1]) + 1):
            self.flush.zero_()

    def begin_case(self):
        self.synchronize()
        self.memory.close()
        paddle.device.cuda.empty_cache()
        self.forget_times()

    def forget_times(self):
        self.rows.forget()

    def name(self):
        return paddle.device.cuda.get_device_name()

    def synchronize(self):
        paddle.device.synchronize()

    def allocated(self):
        return paddle.device.cuda.memory_allocated()

    def peak(self):
        return paddle.device.cuda.max_memory_allocated()

    def reset_peak(self):
        paddle.device.cuda.reset_max_memory_allocated()

    def open_tensors(self, specs):
        self.synchronize()
        self.memory.close()
        return Tensors(specs, self.memory, self.where[0])

    def memory_message(self, text):
        asked = re.search(r"Cannot allocate ([0-9.]+)(GB|MB|KB)", text)
        return f"out of memory (needs {asked.group(1)} {asked.group(2)})" if asked else "out of memory"

    def times(self, work, cold, count, first=None):
        return self.rows.times(work, cold, count, first)
