"""Selects the device class of an adapter by the framework and the device in its PEER."""

import importlib

from support.adapter import Unsupported

CLASSES = {  # imported on demand, since each imports its framework
    ("torch", "cuda"): ("torch_device", "TorchDevice"),
    ("paddle", "cuda"): ("paddle_device", "PaddleDevice"),
    ("torch", "cpu"): ("host_device", "TorchHost"),
    ("numpy", "cpu"): ("host_device", "NumpyHost"),
}


def open_device(peer, index, flush_bytes):
    """Opens the device with this index for an adapter; `peer` is its PEER."""
    where = (peer["framework"], peer["device"])
    if where not in CLASSES:
        known = ", ".join(f"{framework} on {device}" for framework, device in CLASSES)
        raise Unsupported(f"tensors of {where[0]} on {where[1]} are not supported; supported are {known}")
    module, name = CLASSES[where]
    return getattr(importlib.import_module(f"support.{module}"), name)(index, flush_bytes)
