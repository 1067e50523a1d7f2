"""Which device serves an adapter: by the framework and the device of its PEER."""

import importlib

from support.adapter import Unsupported

CLASSES = {  # imported only when asked for: each imports its framework
    ("torch", "cuda"): ("torch_device", "TorchDevice"),
    ("paddle", "cuda"): ("paddle_device", "PaddleDevice"),
    ("torch", "cpu"): ("host_device", "TorchHost"),
    ("numpy", "cpu"): ("host_device", "NumpyHost"),
}


def open_device(peer, index, flush_bytes):
    """`peer` is the PEER of an adapter; its device has this index."""
    where = (peer["framework"], peer["device"])
    if where not in CLASSES:
        known = ", ".join(f"{framework} on {device}" for framework, device in CLASSES)
        raise Unsupported(f"there are no tensors of {where[0]} on {where[1]}; there are those of {known}")
    module, name = CLASSES[where]
    return getattr(importlib.import_module(f"support.{module}"), name)(index, flush_bytes)
