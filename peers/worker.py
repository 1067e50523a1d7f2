"""The worker process of a peer: runs another framework's attention kernel for longspan.

    python -I worker.py ADAPTER

Requests arrive as lines of JSON on standard input, and answers are lines of JSON on file descriptor 3.
docs/reference/peer-protocol.md describes the protocol. A worker serves one adapter (a file of this folder), one case after
another. `hello` begins each case.
"""

import ctypes
import gc
import importlib
import importlib.metadata
import importlib.util
import json
import os
import signal
import sys
import time
import traceback

# The interpreter runs isolated (-I): no module comes from the working folder, PYTHONPATH or a user's own packages.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE] + [folder for folder in os.environ.get("LONGSPAN_PYTHONPATH", "").split(":") if folder.startswith("/")]
sys.dont_write_bytecode = "PYTHONDONTWRITEBYTECODE" in os.environ

from support import devices
from support.adapter import Problem, Unsupported

sys.path.append(sys.path.pop(0))  # behind all packages: an adapter may have the name of one, as flashmask has


def module_of(name):
    """The adapter: a file that the user has named, or one of this folder."""
    stem = name.replace("-", "_")
    for path in os.environ.get("LONGSPAN_PEER_FILES", "").split(":") + [os.path.join(HERE, stem + ".py")]:
        if os.path.basename(path) == stem + ".py" and os.path.exists(path):
            spec = importlib.util.spec_from_file_location("longspan_peer_" + stem, path)
            module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
    return importlib.import_module(stem)


def load(name):
    """(module, None), or (None, the answer that says why the adapter cannot be imported)."""
    kind = "unsupported"
    try:
        return module_of(name), None
    except ModuleNotFoundError as error:
        hint = " (PYTHONPATH is not read; LONGSPAN_PYTHONPATH is)" if "PYTHONPATH" in os.environ else ""
        reason = f"no module {error.name}{hint}"
    except (ImportError, OSError) as error:
        reason = f"cannot be imported: {' '.join(str(error).split())}"
    except Exception as error:  # a mistake in the adapter
        traceback.print_exc()
        kind, reason = "error", f"cannot be imported: {type(error).__name__}: {' '.join(str(error).split())}"
    return None, {"ok": False, "kind": kind, "reason": reason[:500]}


def version_of_package(peer):
    """{package: version} of the package that PEER names, if it is installed."""
    try:
        return {peer["package"]: importlib.metadata.version(peer["package"])}
    except (KeyError, importlib.metadata.PackageNotFoundError):
        return {}


def bytes_of(tensor):
    return tensor.nbytes if hasattr(tensor, "nbytes") else tensor.numel() * tensor.element_size()


class Planned:
    """A plan and the worker's state for it."""

    def __init__(self, plan, compile_s):
        self.plan, self.compile_s = plan, compile_s
        self.ran = set()  # the passes that have run


class Worker:
    def __init__(self, adapter, peer):
        self.adapter, self.peer = adapter, peer
        self.plans = {}
        self.device = None
        self.planned = False  # whether this case has a plan yet
        self.forget_tensors()

    def forget_tensors(self):
        self.tensors = None
        self.ran_forward = None  # the plan whose forward pass ran last on the bound tensors
        self.prepared = None  # the plan that has seen the bound tensors
        self.passes = {}  # its work on them

    def hello(self, request):
        """Begins a case and drops everything of the previous one."""
        self.plans.clear()
        self.forget_tensors()
        self.planned = False
        self.adapter.begin_case()
        gc.collect()
        where = (request["device"], request["flush_bytes"])
        if self.device is None or self.device.where != where:
            own = getattr(self.adapter, "open_device", None)
            self.device = own(*where) if own else devices.open_device(self.peer, *where)
        else:
            self.device.begin_case()
        return {"versions": self.adapter.versions() or version_of_package(self.peer), "device": self.device.name()}

    def problem_of(self, request):
        problem = Problem(**request["problem"])
        if problem.deterministic and not self.adapter.heeds_deterministic:
            raise Unsupported("it is not known to give the same bits on every run")
        if problem.head_dim_v != problem.head_dim and not self.adapter.takes_head_dim_v:
            raise Unsupported("supports head_dim_v == head_dim only")
        if problem.sinks and not self.adapter.takes_sinks:
            raise Unsupported("takes no attention sinks")
        return problem, [self.adapter.read_mask(mask) for mask in request["masks"]]

    def check(self, request):
        """Raises Unsupported if the peer cannot compute this problem exactly."""
        self.adapter.check(*self.problem_of(request), self.device.torch_device)
        return {}

    def plan(self, request):
        """Turns the mask into the framework's own form."""
        problem, masks = self.problem_of(request)
        held = self.device.allocated()
        plan, plan_s = self.plan_once(problem, masks)
        compile_s = 0.0
        if not self.planned:  # plan the case's first one twice: the extra time of the first was compilation
            self.planned = True
            first_s, plan = plan_s, None
            plan, plan_s = self.plan_once(problem, masks)
            compile_s = max(0.0, first_s - plan_s)
        self.plans[request["id"]] = Planned(plan, compile_s)
        return {
            "plan_s": plan_s,
            "compile_s": compile_s,
            "plan_bytes": max(0, self.device.allocated() - held),
            "settings": plan.settings,
            "drift_keys": plan.drift_keys,
        }

    def plan_once(self, problem, masks):
        begin = time.perf_counter()
        plan = self.adapter.plan(problem, masks, self.device.torch_device)
        self.device.synchronize()
        return plan, time.perf_counter() - begin

    def drop(self, request):
        dropped = self.plans.pop(request["id"], None)
        if dropped is not None and dropped.plan is self.ran_forward:
            self.ran_forward = None
        if dropped is not None and dropped.plan is self.prepared:
            self.prepared, self.passes = None, {}
        if dropped is not None and dropped.ran and not self.plans:  # the case is over: free the memory for others
            dropped = None
            self.forget_tensors()
            gc.collect()
            self.device.begin_case()
        return {}

    def bind(self, request):
        """Opens the runner's tensors."""
        self.forget_tensors()
        self.tensors = self.device.open_tensors(request["tensors"])
        return {}

    def run(self, request):
        """Runs once, untimed, and stores the results in the runner's tensors. The first run of a plan is repeated: the extra time
        of the first was compilation, tuning and loading."""
        t, planned, direction = self.tensors, self.plans[request["id"]], request["direction"]
        plan = planned.plan
        self.prepare(plan)
        self.device.forget_times()
        results, run_s, peak = self.run_once(plan, direction)
        if direction not in planned.ran:
            planned.ran.add(direction)
            first_s, results = run_s, None
            results, run_s, peak = self.run_once(plan, direction)
            planned.compile_s += max(0.0, first_s - run_s)
        if direction == "forward":
            results["lse"] = plan.lse()
        t.store(results)
        self.device.synchronize()
        return {"run_s": run_s, "peak_bytes": peak, "compile_s": planned.compile_s}

    def prepare(self, plan):
        t = self.tensors
        t.fetch()
        plan.prepare(t.q, t.k, t.v, t.dout)
        self.prepared = plan
        self.passes = {"forward": lambda: plan.forward(t.q, t.k, t.v), "backward": lambda: plan.backward(t.dout)}

    def run_once(self, plan, direction):
        """(results, time_s, peak_bytes) of one pass."""
        t = self.tensors
        self.device.reset_peak()
        held = self.device.allocated()
        begin = time.perf_counter()
        results = {"o": plan.forward(t.q, t.k, t.v)}
        self.device.synchronize()
        run_s = time.perf_counter() - begin
        self.ran_forward = plan
        if direction == "backward":
            held = self.device.allocated()
            self.device.reset_peak()
            begin = time.perf_counter()
            results = dict(zip(("dq", "dk", "dv"), plan.backward(t.dout)))
            self.device.synchronize()
            run_s = time.perf_counter() - begin
        outputs = sum(map(bytes_of, results.values()))
        return results, run_s, max(0, self.device.peak() - held - outputs)

    def time(self, request):
        """Takes at most `count` samples in a row, each between device events, with a cold cache if requested. With `store`, the
        results of the last sample go into the runner's tensors."""
        t, plan, forward = self.tensors, self.plans[request["id"]].plan, request["direction"] == "forward"
        if self.prepared is not plan:
            self.prepare(plan)
        work, first = self.passes[request["direction"]], None
        if not forward:
            first = self.passes["forward"]
            if self.ran_forward is not plan:
                first()
                self.ran_forward = plan
        if not request.get("store", False):
            return {"times_s": self.device.times(work, request["cold"], request["count"], first)}
        last = []

        def keep():
            last[:] = [work()]

        times_s = self.device.times(keep, request["cold"], request["count"], first)
        results = {"o": last[0], "lse": plan.lse()} if forward else dict(zip(("dq", "dk", "dv"), last[0]))
        t.store(results)
        self.device.synchronize()
        return {"times_s": times_s}

    def handle(self, request):
        operation = {
            "hello": self.hello, "check": self.check, "plan": self.plan, "drop": self.drop, "bind": self.bind, "run": self.run, "time": self.time}
        try:
            return {"ok": True, **operation[request["op"]](request)}
        except Unsupported as reason:
            return {"ok": False, "kind": "unsupported", "reason": str(reason)}
        except ModuleNotFoundError as error:
            return {"ok": False, "kind": "unsupported", "reason": f"no module {error.name}"}
        except Exception as error:  # any exception of a framework fails the case, with a one-line reason
            traceback.print_exc()
            memory = "out of memory" in str(error).lower() or "OutOfMemory" in type(error).__name__
            text = " ".join(str(error).split())[:500] or type(error).__name__
            if memory and self.device is not None:
                text = self.device.memory_message(str(error))
            return {"ok": False, "kind": "memory" if memory else "error", "reason": text}


def become_helper():
    """Ties this process to the one that started it, and makes it the first choice of the out-of-memory killer."""
    try:
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        pass


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: worker.py ADAPTER (started by longspan; see docs/guide/peers.md)")
    become_helper()
    answers = os.fdopen(3, "w", buffering=1)

    def answer(message):
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    module, refusal = load(sys.argv[1])
    if module is None:
        answer(refusal)
        return
    worker = Worker(module.Adapter(), getattr(module, "PEER", {}))
    gc.collect()
    gc.freeze()  # exempt the frameworks' objects: collecting them before each case would take longer than the case
    for line in sys.stdin:  # until the runner ends
        answer(worker.handle(json.loads(line)))


if __name__ == "__main__":
    main()
