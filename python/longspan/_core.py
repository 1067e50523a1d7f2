"""The C interface of the library (python/csrc/core.h), through ctypes."""

import ctypes
import pathlib

_library = ctypes.CDLL(str(pathlib.Path(__file__).parent / "liblongspan_core.so"))

# Numbers of longspan::ErrorKind + 1, and what they are in Python.
_EXCEPTIONS = {1: ValueError, 2: RuntimeError, 3: MemoryError, 4: RuntimeError, 5: NotImplementedError}

I64 = ctypes.c_int64
UNBOUNDED_BELOW, UNBOUNDED_ABOVE = -(2**63), 2**63 - 1


class MasksInfo(ctypes.Structure):
    _fields_ = [(name, I64) for name in ("heads", "rows", "columns", "area")]


class Problem(ctypes.Structure):
    _fields_ = [("heads_q", I64), ("heads_kv", I64), ("head_dim", I64), ("head_dim_v", I64), ("dtype", ctypes.c_int32),
                ("cuda_device", ctypes.c_int32), ("scale", ctypes.c_float), ("deterministic", ctypes.c_int32),
                ("backward", ctypes.c_int32), ("same_launches", ctypes.c_int32), ("softcap", ctypes.c_float),
                ("alibi_slopes", ctypes.POINTER(ctypes.c_float))]


class PlanInfo(ctypes.Structure):
    _fields_ = [("tokens_q", I64), ("tokens_kv", I64), ("problem", Problem), ("forward_bytes", I64),
                ("backward_bytes", I64), ("plan_bytes", I64)]


class ParallelConfig(ctypes.Structure):
    _fields_ = [("ranks", ctypes.c_int32), ("nodes", ctypes.c_int32), ("strategy", ctypes.c_char_p),
                ("names", ctypes.POINTER(ctypes.c_char_p)), ("values", ctypes.POINTER(ctypes.c_char_p)), ("options", I64),
                ("kernel", ctypes.c_char_p), ("lse_gradient", ctypes.c_int32)]


class ParallelInfo(ctypes.Structure):
    _fields_ = [("tokens", I64), ("problem", Problem), ("kept_bytes", I64), ("lse_gradient", ctypes.c_int32)]


class Message(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("bytes", I64), ("peer", ctypes.c_int32)]


START = ctypes.CFUNCTYPE(I64, I64, ctypes.POINTER(Message), I64, ctypes.POINTER(Message), I64)
WAIT = ctypes.CFUNCTYPE(ctypes.c_int32, I64, I64)
FAIL = ctypes.CFUNCTYPE(None, I64, ctypes.c_char_p)


class Carrier(ctypes.Structure):
    _fields_ = [("context", I64), ("start", START), ("wait", WAIT), ("fail", FAIL)]


NCCL_IDENTIFIERS = 256  # bytes

_library.longspan_error.restype = ctypes.c_char_p
_library.longspan_version.restype = ctypes.c_char_p
_library.longspan_masks_delete.argtypes = [ctypes.c_void_p]
_library.longspan_masks_delete.restype = None
_library.longspan_plan_delete.argtypes = [I64]
_library.longspan_plan_delete.restype = None
_library.longspan_set_error.argtypes = [ctypes.c_char_p]
_library.longspan_set_error.restype = None
for _name in ("placement", "group"):
    getattr(_library, f"longspan_{_name}_delete").argtypes = [ctypes.c_void_p]
    getattr(_library, f"longspan_{_name}_delete").restype = None
_library.longspan_parallel_delete.argtypes = [I64]
_library.longspan_parallel_delete.restype = None
_P, _H = ctypes.POINTER, ctypes.c_void_p
for _name, _arguments in {
    "masks_from_bands": [I64, I64, _P(I64), I64, _P(_H)],
    "masks_from_dense": [_H, I64, I64, _P(_H)],
    "masks_of_pattern": [ctypes.c_char_p, I64, _P(ctypes.c_char_p), _P(ctypes.c_char_p), I64, _P(_H)],
    "masks_per_head": [_P(_H), I64, _P(_H)],
    "masks_intersected": [_H, _H, _P(_H)],
    "masks_get_info": [_H, _P(MasksInfo)],
    "masks_band_count": [_H, I64, _P(I64)],
    "masks_bands": [_H, I64, _H],
    "masks_dense": [_H, I64, _H],
    "masks_visible_counts": [_H, I64, _H],
    "masks_density": [_H, I64, ctypes.c_int32, _H],
    "patterns": [_P(ctypes.c_char_p)],
    "plan_make": [_H, _P(Problem), ctypes.c_char_p, _P(I64)],
    "plan_get_info": [I64, _P(PlanInfo)],
    "plan_kernel": [I64, _P(ctypes.c_char_p)],
    "plan_follow": [I64, I64, _P(_H), _P(_H), I64, _H],
    "placement_make": [_H, _P(Problem), _P(ParallelConfig), _P(_H)],
    "placement_ranges": [_H, ctypes.c_int32, _P(I64), _P(_P(I64))],
    "documents": [_H, _H, _P(I64)],
    "digest": [_H, _P(Problem), _P(ParallelConfig), _H, _P(I64)],
    "group_carried": [ctypes.c_int32, ctypes.c_int32, _P(Carrier), _P(_H)],
    "nccl_identifiers": [_H],
    "group_nccl": [ctypes.c_int32, ctypes.c_int32, ctypes.c_char_p, ctypes.c_int32, I64, _P(_H)],
    "group_fail": [_H, ctypes.c_char_p],
    "group_watch": [_H],
    "parallel_make": [_H, _P(Problem), _P(ParallelConfig), _H, _H, _P(I64)],
    "parallel_get_info": [I64, _P(ParallelInfo)],
}.items():
    getattr(_library, "longspan_" + _name).argtypes = _arguments


def call(name, *arguments):
    """Calls a function of the library; raises its error as ValueError, NotImplementedError, MemoryError or
    RuntimeError."""
    status = getattr(_library, "longspan_" + name)(*arguments)
    if status != 0:
        raise _EXCEPTIONS.get(status, RuntimeError)(_library.longspan_error().decode())


def version():
    return _library.longspan_version().decode()


def has_cuda():
    """Whether this build has the kernels for GPUs."""
    return bool(_library.longspan_has_cuda())


def patterns():
    names = ctypes.c_char_p()
    call("patterns", ctypes.byref(names))
    return names.value.decode().split()


def set_error(reason):
    _library.longspan_set_error(reason.encode())


class Masks:
    """Owns a longspan_masks."""

    def __init__(self, function, *arguments):
        self.handle = ctypes.c_void_p()
        call(function, *arguments, ctypes.byref(self.handle))
        self.info = MasksInfo()
        call("masks_get_info", self.handle, ctypes.byref(self.info))

    def __del__(self, delete=_library.longspan_masks_delete):
        if getattr(self, "handle", None):
            delete(self.handle)


class PlanNumber(ctypes.c_int64 * 1):
    """The number of a plan. The plan lives until this memory, and any tensor over it, is gone."""

    def __del__(self, delete=_library.longspan_plan_delete):
        if self[0]:
            delete(self[0])


class Placement:
    """Owns a longspan_placement."""

    def __init__(self, masks, problem, config):
        self.handle = ctypes.c_void_p()
        call("placement_make", masks.handle, ctypes.byref(problem), ctypes.byref(config), ctypes.byref(self.handle))

    def ranges(self, rank):
        """The tokens of a rank: a list of (begin, end)."""
        count, found = ctypes.c_int64(), ctypes.POINTER(ctypes.c_int64)()
        call("placement_ranges", self.handle, rank, ctypes.byref(count), ctypes.byref(found))
        return [(found[2 * i], found[2 * i + 1]) for i in range(count.value)]

    def __del__(self, delete=_library.longspan_placement_delete):
        if getattr(self, "handle", None):
            delete(self.handle)


class Group:
    """Owns a longspan_group."""

    def __init__(self, function, *arguments):
        self.handle = ctypes.c_void_p()
        call(function, *arguments, ctypes.byref(self.handle))

    def __del__(self, delete=_library.longspan_group_delete):
        if getattr(self, "handle", None):
            delete(self.handle)


class ParallelNumber(ctypes.c_int64 * 1):
    """The number of a plan of context parallelism, like PlanNumber. `keeps`: what its calls need."""

    keeps = None

    def __del__(self, delete=_library.longspan_parallel_delete):
        if self[0]:
            delete(self[0])


def documents(masks):
    """The lengths of the blocks of the masks' diagonal."""
    ends, count = (ctypes.c_int64 * max(1, masks.info.rows))(), ctypes.c_int64()
    call("documents", masks.handle, ends, ctypes.byref(count))
    ends = [0, *ends[:count.value]]
    return [b - a for a, b in zip(ends, ends[1:])]
