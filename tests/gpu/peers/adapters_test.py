"""The adapters of peers/ against attention by its definition in fp64, and the worker's protocol.

    python tests/gpu/peers/adapters_test.py [unittest's options]

Each adapter that can be imported runs every mask that it takes, forward and backward. For a mask that it does
not support it must raise Unsupported. Needs PyTorch and a GPU, otherwise it is skipped with the reason.
"""

import ast
import ctypes
import json
import math
import os
import pathlib
import subprocess
import sys
import unittest

PEERS = pathlib.Path(__file__).resolve().parents[3] / "peers"
sys.path.insert(0, str(PEERS))
import worker  # noqa: E402  finds the adapters, and puts their folder behind all packages

sys.path.remove(str(PEERS))  # the first of the two

try:
    import torch

    from support.adapter import Problem, Unsupported
    from support.masks import Mask

    REASON = "" if torch.cuda.is_available() else "no GPU"
except ModuleNotFoundError as error:
    REASON = f"no module {error.name}"


def peer_of(path):
    """PEER of an adapter's file, without running it."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and [getattr(target, "id", "") for target in node.targets] == ["PEER"]:
            return ast.literal_eval(node.value)
    return {}


# The adapters on PyTorch. Those on other frameworks are verified only by `longspan verify`.
ADAPTERS = [
    path.stem for path in sorted(PEERS.glob("*.py")) if peer_of(path).get("framework") == "torch" and peer_of(path)["device"] == "cuda"]


def masks(s):
    """Name -> (bands, the same as a condition on row i and column j), for a length of at least 512 in blocks of 64."""
    i, j = torch.arange(s)[:, None], torch.arange(s)[None, :]
    third = s // 3
    owner = (torch.arange(s) >= third).long() + (torch.arange(s) >= third + 1) + (torch.arange(s) >= s - 65)
    same = owner[:, None] == owner[None, :]
    edges = [0, third, third + 1, s - 65, s]
    documents = list(zip(edges, edges[1:]))
    chequer = ((i // 64) + (j // 64)) % 2 == 0
    blocks = [
        [r, r + 64, c, c + 64, None, None] for r in range(0, s, 64) for c in range(0, s, 64) if (r // 64 + c // 64) % 2 == 0
    ]
    return {
        "full": ([[0, s, 0, s, None, None]], (i >= 0) & (j >= 0)),
        "causal": ([[0, s, 0, s, None, 0]], j <= i),
        "window": ([[0, s, 0, s, -100, 37]], (i - j <= 100) & (j - i <= 37)),
        "causal window": ([[0, s, 0, s, -200, 0]], (i - j <= 200) & (j <= i)),
        "documents": ([[a, b, a, b, None, None] for a, b in documents], same),
        "causal documents": (
            [[a, b, a, b, None, None if b - a == 1 else 0] for a, b in documents], same & (j <= i)),
        "prefix": (
            [[0, third, 0, third, None, None], [third, s, 0, third, None, None], [third, s, third, s, None, 0]],
            (j < third) | (j <= i)),
        "window and first keys": (
            [[0, s, 0, 70, None, None], [0, s, 70, s, -100, 0]], (j < 70) | ((i - j <= 100) & (j <= i))),
        "shared question": (
            [[0, third, 0, third, None, 0], [third, s, 0, third, None, None]]
            + [[a, b, a, b, None, None if b - a == 1 else 0] for a, b in documents[1:]],
            (j <= i) & (same | (j < third))),
        "rows without keys": ([[third, s, third, s, None, 0]], (i >= third) & (j >= third) & (j <= i)),
        "blocks of 64": (blocks, chequer),
        "blocks of 128": blocks_at(range(0, s + 1, 128), range(0, s + 1, 128), 0),
        "blocks of many sizes": blocks_at([0, 100, 101, third, s], [0, 77, third, s - 200, s], 1),
    }


def blocks_at(rows, columns, first):
    """A chequerboard between these boundaries."""
    visible = torch.zeros(rows[-1], columns[-1], dtype=torch.bool)
    bands = []
    for r, (q0, q1) in enumerate(zip(rows, rows[1:])):
        for c, (k0, k1) in enumerate(zip(columns, columns[1:])):
            if (r + c) % 2 == first:
                bands.append([q0, q1, k0, k1, None, None])
                visible[q0:q1, k0:k1] = True
    return bands, visible


def masks_by_head(s):
    """Name -> one mask for each of two KV heads."""
    even = range(0, s + 1, 128)
    return {
        "blocks of 128 by head": [blocks_at(even, even, 0), blocks_at(even, even, 1)],
        "blocks of many sizes by head": [
            blocks_at([0, 100, 300, s], [0, 256, s - 10, s], 0), blocks_at([0, 64, 65, 400, s], [0, 5, s], 1)],
    }


def by_definition(q, k, v, dout, visible, scale):
    """In fp64; [tokens, heads, head_dim]."""
    q, k, v, dout = (x.double().transpose(0, 1) for x in (q, k, v, dout))
    group = q.shape[0] // k.shape[0]
    k2, v2 = k.repeat_interleave(group, 0), v.repeat_interleave(group, 0)
    score = (q @ k2.transpose(1, 2) * scale).masked_fill(~visible, -math.inf)
    lse = torch.logsumexp(score, -1)
    p = torch.exp(score - lse[..., None]).nan_to_num(0.0)
    o = p @ v2
    ds = p * (dout @ v2.transpose(1, 2) - (o * dout).sum(-1, keepdim=True)) * scale
    sum_group = lambda x: x.unflatten(0, (-1, group)).sum(1)
    dq, dk, dv = ds @ k2, sum_group(ds.transpose(1, 2) @ q), sum_group(p.transpose(1, 2) @ dout)
    return {"o": o.transpose(0, 1), "lse": lse, "dq": dq.transpose(0, 1), "dk": dk.transpose(0, 1), "dv": dv.transpose(0, 1)}


def error_of(got, expected):
    got, expected = got.double(), expected.double()
    if got.shape != expected.shape:
        return math.inf
    infinite = torch.isinf(expected)
    if not torch.equal(got[infinite], expected[infinite]):
        return math.inf
    difference, norm = (got - expected)[~infinite].norm(), expected[~infinite].norm()
    error = (difference / norm if norm > 0 else difference).item()
    return math.inf if math.isnan(error) else error


def inputs(s, heads_q, heads_kv, head_dim):
    generator = torch.Generator("cuda").manual_seed(s + heads_q)
    make = lambda heads: torch.randn(s, heads, head_dim, generator=generator, device="cuda").bfloat16()
    return make(heads_q), make(heads_kv), make(heads_kv), make(heads_q)


@unittest.skipIf(REASON, REASON)
class Adapters(unittest.TestCase):
    def check(self, adapter, s, heads_q, heads_kv):
        q, k, v, dout = inputs(s, heads_q, heads_kv, 128)
        scale = 1 / math.sqrt(128)
        taken = []
        cases = {name: [mask] for name, mask in masks(s).items()}
        if heads_kv == 2:
            cases |= masks_by_head(s)
        for name, parts in cases.items():
            forms = [Mask.from_json({"rows": s, "columns": s, "bands": bands}) for bands, _ in parts]
            for form, (_, condition) in zip(forms, parts):
                self.assertTrue(torch.equal(form.dense("cuda").cpu(), condition), f"{name}: the bands are another mask")
            # [1 or heads_q, rows, columns]
            condition = torch.stack([condition for _, condition in parts]).repeat_interleave(
                heads_q // len(parts) if len(parts) > 1 else 1, dim=0)
            plan = None
            for backward in (True, False):  # a package may have only the forward pass
                problem = Problem(s, s, heads_q, heads_kv, 128, "bf16", scale, backward)
                try:
                    plan = adapter.plan(problem, forms, torch.device("cuda"))
                    break
                except Unsupported:
                    pass
            if plan is None:
                continue
            taken.append(name if backward else f"{name} (forward)")
            plan.prepare(q, k, v, dout)
            got = {"o": plan.forward(q, k, v), "lse": plan.lse()}
            if backward:
                got |= zip(("dq", "dk", "dv"), plan.backward(dout))
            expected = by_definition(q, k, v, dout, condition.cuda(), scale)
            for tensor, value in got.items():
                error = error_of(value, expected[tensor])
                tolerance = 1e-4 if tensor == "lse" else 1.2e-2
                with self.subTest(mask=name, tensor=tensor, heads=f"{heads_q}:{heads_kv}"):
                    self.assertLess(error, tolerance)
            # The comparison can fail: it must reject the result of another mask.
            if name != "full":
                other = by_definition(q, k, v, dout, torch.ones_like(condition).cuda(), scale)
                self.assertGreater(error_of(got["o"], other["o"]), 0.05)
        return taken


def _add(name):
    def test(self):
        try:
            adapter = worker.module_of(name).Adapter()
        except ImportError as error:
            self.skipTest(str(error))
        taken = self.check(adapter, 768, 8, 2)
        self.check(adapter, 512, 4, 4)
        self.assertTrue(taken)
        print(f"{name} {adapter.versions()}: {', '.join(taken)}", file=sys.stderr)

    setattr(Adapters, f"test_{name}", test)


for _name in ADAPTERS:
    _add(_name)


@unittest.skipIf(REASON, REASON)
class Worker(unittest.TestCase):
    """The protocol, over CUDA IPC, from memory that this process allocated outside PyTorch as longspan does."""

    def start(self, adapter):
        read, write = os.pipe()
        # The worker's answers go to its descriptor 3.
        command = ["bash", "-c", f'exec "$0" "$@" 3>&{write}', sys.executable, str(PEERS / "worker.py"), adapter]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, pass_fds=[write])
        os.close(write)
        self.answers = os.fdopen(read)
        self.addCleanup(self.stop)

    def stop(self):
        self.process.stdin.close()
        self.process.wait(30)
        self.answers.close()

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.answers.readline())
        return answer

    def share(self, values):
        cuda = ctypes.CDLL("libcuda.so.1")
        pointer, handle = ctypes.c_uint64(), (ctypes.c_char * 64)()
        size = max(values.numel() * values.element_size(), 2 << 20)
        self.assertEqual(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)), 0)
        self.assertEqual(cuda.cuIpcGetMemHandle(handle, pointer), 0, "no CUDA IPC here")
        from support.torch_device import _Span

        count = values.numel() * values.element_size()
        view = torch.as_tensor(_Span(pointer.value, count), device="cuda").view(values.dtype).view(values.shape)
        view.copy_(values)
        names = {torch.bfloat16: "bf16", torch.float32: "f32"}
        spec = {"shape": list(values.shape), "dtype": names[values.dtype], "ipc": bytes(handle.raw).hex(), "offset": 0}
        return view, spec

    def test_runs_over_shared_memory_and_times(self):
        s, heads_q, heads_kv = 768, 8, 2
        q, k, v, dout = inputs(s, heads_q, heads_kv, 128)
        nan = lambda x, dtype=torch.bfloat16: torch.full(x, math.nan, device="cuda", dtype=dtype)
        tensors = {"q": q, "k": k, "v": v, "dout": dout, "o": nan(q.shape), "lse": nan((heads_q, s), torch.float32),
                   "dq": nan(q.shape), "dk": nan(k.shape), "dv": nan(k.shape)}
        shared = {name: self.share(values) for name, values in tensors.items()}
        torch.cuda.synchronize()
        bands, condition = masks(s)["causal documents"]
        problem = dict(tokens_q=s, tokens_kv=s, heads_q=heads_q, heads_kv=heads_kv, head_dim=128, dtype="bf16",
                       scale=1 / math.sqrt(128), backward=True, deterministic=False)
        self.start("torch-fa2")
        self.assertTrue(self.ask(op="hello", device=0, flush_bytes=128 << 20)["ok"])
        plan = self.ask(op="plan", id=1, problem=problem, masks=[{"rows": s, "columns": s, "bands": bands}])
        self.assertTrue(plan["ok"], plan)
        answer = self.ask(op="bind", tensors={name: spec for name, (_, spec) in shared.items()})
        self.assertTrue(answer["ok"], answer)
        for direction in ("forward", "backward"):
            answer = self.ask(op="run", id=1, direction=direction)
            self.assertTrue(answer["ok"], answer)
            self.assertGreaterEqual(answer["peak_bytes"], 0)
            for count in (1, 1, 8):
                answer = self.ask(op="time", id=1, direction=direction, cold=True, count=count)
                self.assertTrue(answer["ok"], answer)
                self.assertTrue(1 <= len(answer["times_s"]) <= count, answer)
                self.assertTrue(all(1e-6 < time_s < 1e-2 for time_s in answer["times_s"]), answer)
            for name in ("o", "lse") if direction == "forward" else ("dq", "dk", "dv"):
                shared[name][0].fill_(math.nan)
            torch.cuda.synchronize()
            answer = self.ask(op="time", id=1, direction=direction, cold=True, count=1, store=True)
            self.assertTrue(answer["ok"], answer)
        expected = by_definition(q, k, v, dout, condition.cuda(), problem["scale"])
        for name in ("o", "lse", "dq", "dk", "dv"):
            self.assertLess(error_of(shared[name][0], expected[name]), 1.2e-2, name)

    def test_refuses_with_a_reason(self):
        self.start("torch-fa2")
        self.ask(op="hello", device=0, flush_bytes=1 << 20)
        s = 512
        problem = dict(tokens_q=s, tokens_kv=s, heads_q=1, heads_kv=1, head_dim=64, dtype="bf16", scale=0.1, backward=False,
                       deterministic=False)
        answer = self.ask(op="plan", id=1, problem=problem, masks=[{"rows": s, "columns": s, "bands": masks(s)["prefix"][0]}])
        self.assertEqual((answer["ok"], answer["kind"]), (False, "unsupported"))
        self.assertIn("cannot express this mask", answer["reason"])

    def test_names_the_missing_module(self):
        self.start("no-such-adapter")
        answer = json.loads(self.answers.readline())
        self.assertEqual(answer, {"ok": False, "kind": "unsupported", "reason": "no module no_such_adapter"})


@unittest.skipIf(REASON, REASON)
class Recorded(unittest.TestCase):
    """Rows of work whose launches are slow, or so the timer is told."""

    def setUp(self):
        from support.torch_device import TorchDevice

        self.device = TorchDevice(0, 1 << 20)
        self.x = torch.ones(1 << 24, device="cuda")

    def rows_of(self, work):
        self.device.rows.launch_s = 2e-3
        return [self.device.times(work, True, 16) for _ in range(2)]

    def test_a_row_is_replayed(self):
        rows = self.rows_of(lambda: self.x.add_(1))
        self.assertEqual([len(row) for row in rows], [16, 16])
        self.assertIsNotNone(self.device.rows.recorded)
        self.assertTrue(all(time_s > 5e-6 for row in rows for time_s in row), rows)
        # One call before the recording, a replay to load it and two rows; recording alone runs nothing.
        self.assertTrue(torch.equal(self.x, torch.full_like(self.x, 1 + 1 + 3 * 16)))

    def check_launched(self, work):
        self.rows_of(work)
        self.assertFalse(self.device.rows.can_record)
        self.assertIsNone(self.device.rows.recorded)
        self.assertTrue(torch.isfinite(self.x * 2).all())  # the device is as usable as before

    def test_work_that_waits_for_the_device_is_launched(self):
        self.check_launched(lambda: self.x.sum().item())

    def test_work_beside_the_stream_is_launched(self):
        def beside():
            with torch.cuda.stream(torch.cuda.default_stream()):
                self.x.add_(1)

        self.check_launched(beside)


if __name__ == "__main__":
    unittest.main()
