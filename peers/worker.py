"""The worker process of a peer: runs another framework's attention kernel for longspan.

    python worker.py ADAPTER

Requests come as lines of JSON on standard input, answers go as lines of JSON to file descriptor 3; docs/peers.md is the
protocol. One worker serves one adapter (a file of this folder) for the life of one case.
"""

import importlib
import json
import os
import sys
import time
import traceback

from support.adapter import Problem, Unsupported
from support.masks import Mask


def load(name):
    """The adapter's module, or the reason that it cannot be had."""
    try:
        return importlib.import_module(name.replace("-", "_")), None
    except ModuleNotFoundError as error:
        return None, f"no module {error.name}"
    except (ImportError, OSError) as error:
        return None, f"cannot be imported: {str(error).splitlines()[0]}"


class Worker:
    def __init__(self, adapter):
        self.adapter = adapter
        self.plans = {}
        self.device = self.tensors = None
        self.ran_forward = None  # the plan whose forward pass ran last on these tensors

    def hello(self, request):
        from support import torch_device

        self.device = torch_device.TorchDevice(request["device"], request["flush_bytes"])
        return {"versions": self.adapter.versions(), "device": self.device.name()}

    def plan(self, request):
        """Turns the mask into the framework's own form. Raises Unsupported where it has none that is exact."""
        problem = Problem(**request["problem"])
        masks = [Mask.from_json(mask) for mask in request["masks"]]
        held = self.device.allocated()
        begin = time.perf_counter()
        plan = self.adapter.plan(problem, masks, self.device.torch_device)
        self.device.synchronize()
        plan_s = time.perf_counter() - begin
        self.plans[request["id"]] = plan
        return {
            "plan_s": plan_s,
            "plan_bytes": self.device.allocated() - held,
            "settings": plan.settings,
        }

    def drop(self, request):
        self.plans.pop(request["id"], None)
        return {}

    def bind(self, request):
        """Opens the runner's tensors."""
        self.tensors = self.ran_forward = None
        self.tensors = self.device.open_tensors(request["tensors"])
        return {}

    def run(self, request):
        """Runs once, untimed, and leaves the results in the runner's tensors."""
        t, plan = self.tensors, self.plans[request["id"]]
        t.fetch()
        plan.prepare(t.q, t.k, t.v, t.dout)
        self.device.reset_peak()
        held = self.device.allocated()
        begin = time.perf_counter()
        results = {"o": plan.forward(t.q, t.k, t.v)}
        self.device.synchronize()
        run_s = time.perf_counter() - begin
        self.ran_forward = plan
        if request["direction"] == "backward":
            held = self.device.allocated()
            self.device.reset_peak()
            begin = time.perf_counter()
            results = dict(zip(("dq", "dk", "dv"), plan.backward(t.dout)))
            self.device.synchronize()
            run_s = time.perf_counter() - begin
        outputs = sum(x.numel() * x.element_size() for x in results.values())
        peak = max(0, self.device.peak() - held - outputs)
        if request["direction"] == "forward":
            results["lse"] = plan.lse()
        t.store(results)
        self.device.synchronize()
        return {"run_s": run_s, "peak_bytes": peak}

    def time(self, request):
        """One sample: cold cache if asked for, the work behind a gate, device events around it."""
        t, plan = self.tensors, self.plans[request["id"]]
        if request["direction"] == "forward":
            return {"time_s": self.device.time(lambda: plan.forward(t.q, t.k, t.v), request["cold"])}
        if self.ran_forward is not plan:
            plan.forward(t.q, t.k, t.v)
            self.ran_forward = plan
        return {"time_s": self.device.time(lambda: plan.backward(t.dout), request["cold"])}

    def handle(self, request):
        operation = {
            "hello": self.hello, "plan": self.plan, "drop": self.drop, "bind": self.bind, "run": self.run, "time": self.time}
        try:
            return {"ok": True, **operation[request["op"]](request)}
        except Unsupported as reason:
            return {"ok": False, "kind": "unsupported", "reason": str(reason)}
        except ModuleNotFoundError as error:
            return {"ok": False, "kind": "unsupported", "reason": f"no module {error.name}"}
        except Exception as error:  # whatever a framework throws is the case's failure, told in one line
            traceback.print_exc()
            memory = "out of memory" in str(error).lower() or "OutOfMemory" in type(error).__name__
            text = " ".join(str(error).split())[:500] or type(error).__name__
            if memory and self.device is not None:
                text = self.device.memory_message(str(error))
            return {"ok": False, "kind": "memory" if memory else "error", "reason": text}


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: worker.py ADAPTER (started by longspan; see docs/peers.md)")
    answers = os.fdopen(3, "w", buffering=1)

    def answer(message):
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    module, reason = load(sys.argv[1])
    if module is None:
        answer({"ok": False, "kind": "unsupported", "reason": reason})
        return
    worker = Worker(module.Adapter())
    for line in sys.stdin:  # ends with the runner
        answer(worker.handle(json.loads(line)))


if __name__ == "__main__":
    main()
