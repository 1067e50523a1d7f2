"""A peer for tests: attention by its definition in plain Python, on the CPU. At some lengths it fails in the ways that peers fail.

It needs only Python and runs in the real worker: put this folder on LONGSPAN_PYTHONPATH.
"""

PEER = {
    "description": "attention by its definition in plain Python, for tests",
    "framework": "python",
    "device": "cpu",
    "passes": ["forward"],
    "colour": "#123456",
}

import array
import ctypes
import math
import mmap
import os
import signal
import time

from support.adapter import Peer, Plan, Unsupported

KILLED, HUNG, MEMORY, CRASH, REFUSED, WRONG, RAISES, EXITS, BABBLES, REFUSED_LATE = range(41, 51)  # lengths


class Tensor:
    """[tokens, heads, head_dim] of f32 in a flat list."""

    def __init__(self, shape, values=None):
        self.shape = tuple(shape)
        self.values = values if values is not None else [0.0] * self.numel()

    def numel(self):
        return math.prod(self.shape)

    def element_size(self):
        return 4

    def row(self, token, head):
        _, heads, head_dim = self.shape
        begin = (token * heads + head) * head_dim
        return slice(begin, begin + head_dim)


class Tensors:
    def __init__(self, specs):
        self.maps = {}
        for name in ("q", "k", "v", "o", "lse", "dout", "dq", "dk", "dv"):
            setattr(self, name, None)
        for name, spec in specs.items():
            assert spec["dtype"] == "f32"
            with open(spec["file"], "r+b") as file:
                self.maps[name] = memoryview(mmap.mmap(file.fileno(), 0)).cast("f")
            setattr(self, name, Tensor(spec["shape"]))

    def fetch(self):
        for name in self.maps.keys() & {"q", "k", "v", "dout"}:
            getattr(self, name).values[:] = self.maps[name]

    def store(self, results):
        for name, result in results.items():
            for i, value in enumerate(result.values):
                self.maps[name][i] = value


class Device:
    torch_device = None

    def __init__(self, index, flush_bytes):
        self.where = (index, flush_bytes)

    def begin_case(self):
        pass

    forget_times = synchronize = reset_peak = begin_case

    def name(self):
        return "a fake"

    def allocated(self):
        return 0

    peak = allocated

    def open_tensors(self, specs):
        return Tensors(specs)

    def memory_message(self, text):
        return f"out of memory ({text})"

    def times(self, work, cold, count, first=None):
        begin = time.perf_counter()
        work()
        return [time.perf_counter() - begin]


def misbehave(length):
    if length == KILLED:
        os.kill(os.getpid(), signal.SIGKILL)
    elif length == HUNG:
        time.sleep(3600)
    elif length == MEMORY:
        raise RuntimeError("CUDA out of memory. Tried to allocate 7.00 GiB")
    elif length == CRASH:
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        ctypes.string_at(0)
    elif length == RAISES:
        raise ValueError("the framework lost count\nin many words")
    elif length == EXITS:
        os._exit(9)
    elif length == BABBLES:
        os.write(3, b"no json\n")


class FakePlan(Plan):
    def __init__(self, problem, visible):
        self.problem, self.visible = problem, visible
        self.settings = f"process {os.getpid()}"

    def forward(self, q, k, v):
        misbehave(self.problem.tokens_q)
        p = self.problem
        self.o, self.kept_lse = Tensor(q.shape), Tensor((p.heads_q, p.tokens_q, 1))
        for head in range(p.heads_q):
            for i in range(p.tokens_q):
                keys = self.visible[i]
                sink = [p.sinks[head]] if p.sinks else []
                query = q.values[q.row(i, head)]
                scores = [p.scale * sum(map(float.__mul__, query, k.values[k.row(j, head // p.group)])) for j in keys]
                most = max(scores + sink, default=-math.inf)
                weights = [math.exp(s - most) for s in scores + sink]
                total = sum(weights)
                row = [0.0] * p.head_dim
                for weight, j in zip(weights, keys):
                    for d, value in enumerate(v.values[v.row(j, head // p.group)]):
                        row[d] += weight / total * value
                if p.tokens_q == WRONG:
                    row[0] += 0.25
                self.o.values[self.o.row(i, head)] = row
                self.kept_lse.values[head * p.tokens_q + i] = most + math.log(total) if weights else -math.inf
        return self.o

    def lse(self):
        return self.kept_lse


def bands_of_file(mask):
    """As in docs/reference/peer-protocol.md: six 64-bit numbers per band, where the smallest and the largest mean no bound."""
    numbers = array.array("q")
    with open(mask["file"], "rb") as file:
        file.seek(mask["offset"])
        numbers.fromfile(file, 6 * mask["count"])
    none = lambda x: None if abs(x) > 1 << 62 else x
    return [[*numbers[i : i + 4], none(numbers[i + 4]), none(numbers[i + 5])] for i in range(0, len(numbers), 6)]


class Adapter(Peer):
    heeds_deterministic = "FAKE_HEEDS_DETERMINISTIC" in os.environ
    takes_sinks = "FAKE_TAKES_SINKS" in os.environ

    def versions(self):
        return {"fake": "1.0"}

    def open_device(self, index, flush_bytes):
        return Device(index, flush_bytes)

    def read_mask(self, mask):
        columns = range(mask["columns"])
        seen = [[] for _ in range(mask["rows"])]
        for q0, q1, k0, k1, lo, hi in mask["bands"] if "bands" in mask else bands_of_file(mask):
            for i in range(q0, q1):
                seen[i] += [j for j in columns[k0:k1] if (lo is None or lo <= j - i) and (hi is None or j - i <= hi)]
        return seen

    def check(self, problem, masks, device):
        if problem.tokens_q != REFUSED_LATE:
            self.plan(problem, masks, device)

    def plan(self, problem, masks, device):
        if problem.tokens_q == REFUSED_LATE:
            raise Unsupported("has no kernel for that, as it turns out")
        if problem.backward:
            raise Unsupported("has no backward pass")
        if problem.dtype != "f32":
            raise Unsupported("supports only f32")
        if problem.tokens_q == REFUSED:
            raise Unsupported("needs a Tuesday")
        return FakePlan(problem, masks[0])
