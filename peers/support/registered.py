"""A kernel that the user has registered with longspan.bench: one function, as a peer."""

import array
import functools
import sys

import torch

from support.adapter import Peer, Plan, Unsupported

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
MOST_SCORES = 1 << 25  # at a time


def adapter(name, module, file, folders):
    """The `Adapter` of the kernel that importing this module or file registers. folders: where the user's script finds modules."""
    sys.path += [folder for folder in folders if folder not in sys.path]
    from longspan import Mask, bench

    return functools.partial(RegisteredPeer, bench._load(name, module, file), bench.Problem, Mask)


def lse_of(problem, q, k):
    """[heads_q, tokens_q] in fp64, by the definition. Never timed."""
    lse = torch.empty(problem.heads_q, problem.tokens_q, dtype=torch.float64, device=q.device)
    group = problem.heads_q // problem.heads_kv
    step = max(1, MOST_SCORES // max(1, problem.tokens_kv))
    for kv_head in range(problem.heads_kv):
        bands = problem.mask.bands(kv_head if problem.mask.heads > 1 else 0)
        keys = k[:, kv_head].double().T
        for begin in range(0, problem.tokens_q, step):
            end = min(problem.tokens_q, begin + step)
            hidden = hidden_rows(bands, begin, end, problem.tokens_kv, q.device)
            for head in range(kv_head * group, (kv_head + 1) * group):
                scores = q[begin:end, head].double() @ keys * problem.scale
                lse[head, begin:end] = scores.masked_fill_(hidden, float("-inf")).logsumexp(-1)
    return lse


def hidden_rows(bands, begin, end, columns, device):
    """[end - begin, columns] bool: the pairs that no band shows."""
    hidden = torch.ones(end - begin, columns, dtype=torch.bool, device=device)
    for q0, q1, k0, k1, lo, hi in bands:
        first, last = max(begin, q0), min(end, q1)
        if first < last:
            offset = torch.arange(k0, k1, device=device)[None, :] - torch.arange(first, last, device=device)[:, None]
            hidden[first - begin : last - begin, k0:k1] &= (offset < lo) | (offset > hi)
    return hidden


class RegisteredPlan(Plan):
    def __init__(self, kernel, problem):
        self.kernel, self.problem = kernel, problem
        self.autograd = problem.backward and kernel.backward is True

    def forward(self, q, k, v):
        self.inputs = [x.detach().requires_grad_(self.autograd) for x in (q, k, v)]
        with torch.set_grad_enabled(self.autograd):
            result = self.kernel.function(self.problem, *self.inputs)
        self.o, self.kept_lse = result if isinstance(result, tuple) else (result, None)
        if not isinstance(self.o, torch.Tensor) or self.o.shape != q.shape or self.o.dtype != q.dtype:
            raise TypeError(f"o must be like q, {q.dtype} {list(q.shape)}, not {described(self.o)}")
        return self.o.detach()

    def lse(self):
        if self.kept_lse is None:
            return lse_of(self.problem, *(x.detach() for x in self.inputs[:2]))
        shape = (self.problem.heads_q, self.problem.tokens_q)
        if self.kept_lse.shape != shape:
            raise TypeError(f"lse must have shape {list(shape)}, not {described(self.kept_lse)}")
        return self.kept_lse.detach()

    def backward(self, dout):
        if self.kernel.backward is not True:
            with torch.no_grad():
                gradients = self.kernel.backward(self.problem, dout, *self.inputs, self.o, self.kept_lse)
        elif not self.o.requires_grad:
            raise TypeError("PyTorch cannot differentiate its result; give register() backward=, a function or False")
        else:
            gradients = torch.autograd.grad(self.o, self.inputs, dout, retain_graph=True)
        for name, gradient, x in zip(("dq", "dk", "dv"), gradients, self.inputs, strict=True):
            if gradient.shape != x.shape:
                raise TypeError(f"{name} must have shape {list(x.shape)}, not {described(gradient)}")
        return tuple(gradients)


def described(value):
    return f"{value.dtype} {list(value.shape)}" if isinstance(value, torch.Tensor) else f"a {type(value).__name__}"


class RegisteredPeer(Peer):
    def __init__(self, kernel, problem_type, mask_type):
        self.kernel, self.problem_type, self.mask_type = kernel, problem_type, mask_type
        self.heeds_deterministic = kernel.deterministic

    def begin_case(self):
        """Dynamo compiles a function for eight cases and then silently runs it as it is: each case begins anew, and more is an error."""
        if "torch._dynamo" in sys.modules:
            torch.compiler.reset()
            torch._dynamo.config.fail_on_recompile_limit_hit = True

    def read_mask(self, mask):
        if "file" in mask:
            numbers = array.array("q")
            with open(mask["file"], "rb") as file:
                file.seek(mask["offset"])
                numbers.fromfile(file, 6 * mask["count"])
            bands = [numbers[i : i + 6] for i in range(0, len(numbers), 6)]
        else:
            below, above = self.mask_type.UNBOUNDED_BELOW, self.mask_type.UNBOUNDED_ABOVE
            bands = [[*band, below if lo is None else lo, above if hi is None else hi] for *band, lo, hi in mask["bands"]]
        return self.mask_type.from_bands(bands, mask["rows"], mask["columns"])

    def problem_of(self, problem, masks, device):
        mask = masks[0] if len(masks) == 1 else self.mask_type.per_head(masks)
        return self.problem_type(problem.tokens_q, problem.tokens_kv, problem.heads_q, problem.heads_kv, problem.head_dim,
                                 DTYPES[problem.dtype], problem.scale, problem.backward, problem.deterministic, mask, device)

    def check(self, problem, masks, device):
        self.supported(self.problem_of(problem, masks, device))

    def supported(self, problem):
        reason = None if self.kernel.supports is None else self.kernel.supports(problem)
        if not isinstance(reason, (str, type(None))):
            raise TypeError(f"supports() returned {reason!r}: must be None, or the reason against it as a text")
        if reason:
            raise Unsupported(reason)
        return problem

    def plan(self, problem, masks, device):
        asked = self.supported(self.problem_of(problem, masks, device))
        if self.kernel.plan is not None:
            asked.plan = self.kernel.plan(asked)
        return RegisteredPlan(self.kernel, asked)
