"""Device memory owned by the runner, in a form that frameworks accept. Needs no framework."""

import ctypes


class _Handle(ctypes.Structure):  # CUipcMemHandle
    _fields_ = [("bytes", ctypes.c_char * 64)]


class SharedMemory:
    """The runner's allocations, opened through CUDA IPC while they are bound."""

    def __init__(self):
        self.opened = {}
        self.cuda = ctypes.CDLL("libcuda.so.1")

    def open(self, handle):
        """The address in this process of the allocation with this handle, given in hexadecimal digits."""
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
        """Closes allocations that are no longer bound: the runner may free them, and the same handle may be reused for other
        memory. No running work may still use them."""
        function = getattr(self.cuda, "cuIpcCloseMemHandle")
        function.argtypes = [ctypes.c_uint64]
        for pointer in self.opened.values():
            function(pointer)
        self.opened.clear()


class _DLTensor(ctypes.Structure):  # DLPack's published layout
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class _DLManagedTensor(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_DLManagedTensor))
_DLManagedTensor._fields_ = [("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]
CPU, CUDA = 1, 2
_CODES = {"f32": (2, 32), "f16": (2, 16), "bf16": (4, 16)}
_alive = {}  # objects that capsules point to, until their consumers release them


@_Deleter
def _delete(managed):
    _alive.pop(ctypes.addressof(managed.contents), None)


def capsule_of(pointer, shape, dtype, index, kind=CUDA):
    """A dense tensor at an address, as a DLPack capsule. It does not own the memory."""
    extents = (ctypes.c_int64 * len(shape))(*shape)
    code, bits = _CODES[dtype]
    managed = _DLManagedTensor(
        _DLTensor(pointer, kind, index, len(shape), code, bits, 1, extents, None, 0), None, _delete)
    _alive[ctypes.addressof(managed)] = (managed, extents)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(ctypes.addressof(managed), b"dltensor", None)
