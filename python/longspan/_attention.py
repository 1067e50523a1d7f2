"""Exact attention over any mask, for PyTorch tensors."""

import ctypes
import weakref

import torch
from torch.utils.weak import WeakIdKeyDictionary

from longspan import _core, _ops
from longspan._mask import Mask

_DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}


def problem_of(heads, head_dim, dtype, device, scale, deterministic, backward, graphs=False, head_dim_v=None, softcap=None,
               alibi_slopes=None):
    """(device, _core.Problem) of the arguments of a plan."""
    device = torch.device(device)
    if dtype not in _DTYPES:
        raise TypeError(f"dtype {dtype}: must be float32, bfloat16 or float16")
    if device.type not in ("cpu", "cuda"):
        raise NotImplementedError(f"device {device}: must be the CPU or a CUDA GPU")
    if device.type == "cuda" and not _core.has_cuda():
        raise NotImplementedError(f"tensors on {device}: this build of longspan has no CUDA kernels; install it where "
                                  "nvcc is, or move the tensors to the CPU")
    if scale is not None and not 0 < scale < float("inf"):
        raise ValueError(f"scale {scale}: must be positive and finite")
    if softcap is not None and not 0 <= softcap < float("inf"):
        raise ValueError(f"softcap {softcap}: must be positive and finite, or 0 for none")
    slopes = slopes_of(alibi_slopes, heads[0])
    index = -1
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
    device = torch.device("cpu") if index < 0 else torch.device("cuda", index)
    return device, _core.Problem(*heads, head_dim, head_dim_v or 0, _DTYPES[dtype], index, scale or 0, bool(deterministic),
                                 bool(backward), bool(graphs), softcap or 0,
                                 (ctypes.c_float * len(slopes))(*slopes) if slopes else None)


_slopes_of_tensors = WeakIdKeyDictionary()  # (version, slopes) by tensor: a tensor on a GPU is read once


def slopes_of(slopes, heads):
    """alibi_slopes as a tuple of numbers, one for each head; () for None."""
    if slopes is None:
        return ()
    if isinstance(slopes, torch.Tensor):
        if slopes.dim() != 1:
            raise NotImplementedError(f"alibi_slopes has shape {list(slopes.shape)}: longspan has one slope per head, "
                                      f"[{heads}], for all sequences")
        if slopes.requires_grad:
            raise NotImplementedError("alibi_slopes requires a gradient: longspan has none for them")
        kept, version = _slopes_of_tensors.get(slopes), None if slopes.is_inference() else slopes._version
        if version is None or kept is None or kept[0] != version:
            kept = _slopes_of_tensors[slopes] = (version, tuple(slopes.tolist()))
        found = kept[1]
    else:
        found = tuple(float(slope) for slope in slopes)
    if len(found) != heads:
        raise ValueError(f"alibi_slopes has {len(found)} slopes: must have one for each of {heads} heads")
    if not all(0 <= slope < float("inf") for slope in found):
        raise ValueError(f"alibi_slopes {list(found)}: each must be finite and at least 0")
    return found


class Plan:
    """What a kernel prepares once for a mask and the shape of the tensors. It serves any number of layers, steps and
    streams. `tensor` is how the plan enters an operator, and keeps it alive."""

    def __init__(self, mask, heads, head_dim, dtype=torch.bfloat16, device="cuda", *, head_dim_v=None, scale=None,
                 softcap=None, alibi_slopes=None, deterministic=False, backward=True, kernel="auto", graphs=False):
        """mask: a Mask. heads: (query heads, KV heads). head_dim: of q and k. dtype: torch.bfloat16 or float16, on the CPU
        also float32. device: such as "cpu" or "cuda:1". head_dim_v: of v and o, head_dim by default. scale: of q k^T,
        1 / sqrt(head_dim) by default. softcap, alibi_slopes: as of attention(). deterministic: the same bits on every run.
        backward: whether gradients are wanted. kernel: "auto", or one of `longspan list kernels`. graphs: update_() can
        give CUDA graphs another mask; the plan then does without what only some masks allow, and is slower.

        Raises TypeError or ValueError for wrong arguments, NotImplementedError with each kernel's reason if none can do it."""
        self.device, self._made_for = problem_of(heads, head_dim, dtype, device, scale, deterministic, backward, graphs,
                                                 head_dim_v, softcap, alibi_slopes)
        self.heads, self.head_dim, self.dtype, self.backward = tuple(heads), head_dim, dtype, bool(backward)
        self.head_dim_v = head_dim_v or head_dim
        self._kernel_asked = kernel
        self.mask, self.tensor = mask, self._number(mask)

    def _number(self, mask):
        """The tensor of a new plan's number."""
        if not isinstance(mask, Mask):
            raise TypeError(f"mask: must be a longspan.Mask, not {type(mask).__name__}")
        number = _core.PlanNumber()
        _core.call("plan_make", mask._masks.handle, ctypes.byref(self._made_for), self._kernel_asked.encode(), number)
        with torch.inference_mode(False):  # the backward pass keeps it
            return torch.frombuffer(number, dtype=torch.int64)

    def update_(self, mask, graphs=()):
        """Plans another mask of as many rows and columns in this plan's place. Functions that hold the plan, compiled ones
        too, use it from their next call on; backward passes of earlier calls keep the mask of their forward pass.

        graphs: those torch.cuda.CUDAGraph that have captured calls of this plan and shall use the mask, too, from their
        next replay() on, in the current stream. Other graphs keep the mask they have. That needs a plan made with
        graphs=True, and graphs made with torch.cuda.CUDAGraph(keep_graph=True) on which instantiate() was called.

        Returns the plan. Raises ValueError for a mask of another size, NotImplementedError if the graphs cannot follow;
        the plan and the graphs are then as before."""
        if isinstance(mask, Mask) and mask.shape != self.mask.shape:
            raise ValueError(f"the mask has {list(mask.shape)} rows and columns: the plan is for {list(self.mask.shape)}")
        if graphs and not self._made_for.same_launches:
            raise ValueError("graphs follow only a plan that was made with graphs=True")
        tensor = self._number(mask)
        if graphs:
            array = ctypes.c_void_p * len(graphs)
            _core.call("plan_follow", int(tensor), int(self.tensor), array(*(graph.raw_cuda_graph() for graph in graphs)),
                       array(*(graph.raw_cuda_graph_exec() for graph in graphs)), len(graphs),
                       torch.cuda.current_stream(self.device).cuda_stream)
        self.mask, self.tensor = mask, tensor
        return self

    @property
    def kernel(self):
        """The name of the kernel, which "auto" has chosen."""
        name = ctypes.c_char_p()
        _core.call("plan_kernel", int(self.tensor), ctypes.byref(name))
        return name.value.decode()

    @property
    def info(self):
        """A dict of bytes: `plan_bytes` of the plan, `forward_bytes` and `backward_bytes` of a call's workspace."""
        info = _core.PlanInfo()
        _core.call("plan_get_info", int(self.tensor), ctypes.byref(info))
        return {name: getattr(info, name) for name in ("plan_bytes", "forward_bytes", "backward_bytes")}

    def __repr__(self):
        dims = f"{self.head_dim}" if self.head_dim == self.head_dim_v else f"{self.head_dim}/{self.head_dim_v}"
        return f"<longspan.Plan for {self.mask!r}, heads {self.heads}, head_dim {dims}, {self.dtype}>"


def plan(mask, heads, head_dim, dtype=torch.bfloat16, device="cuda", **options):
    """A Plan to be given to attention() in place of the mask: within torch.compile, or to plan ahead of time. It takes
    the arguments of Plan, and raises the same errors."""
    return Plan(mask, heads, head_dim, dtype, device, **options)


def plan_of(mask, q, k, v, scale, deterministic, backward, softcap=None, alibi_slopes=None):
    """The plan that is kept with the mask, or a new one."""
    if q.dim() < 3 or k.dim() < 3 or v.dim() < 3:
        _ops.tokens(q, "q"), _ops.tokens(k, "k"), _ops.tokens(v, "v")  # raises
    slopes = None if alibi_slopes is None else slopes_of(alibi_slopes, q.shape[-2])
    key = (q.shape[-2], k.shape[-2], q.shape[-1], v.shape[-1], q.dtype, q.device, scale, softcap, slopes, deterministic)
    found = mask._plans.get(key)
    if found is None or backward and not found.backward:
        if torch.compiler.is_compiling():
            raise RuntimeError("a mask must have its plan before torch.compile traces a call: give the call "
                               "longspan.plan(mask, ...), or call it once before")
        found = Plan(mask, key[:2], key[2], q.dtype, q.device, head_dim_v=key[3], scale=scale, softcap=softcap,
                     alibi_slopes=slopes, deterministic=deterministic, backward=backward)
        mask._plans[key] = found
    return found


def autocast(q, k, v):
    """The tensors in autocast's dtype, where that is on."""
    kind = "cuda" if q.is_cuda else "cpu"
    if not torch.is_autocast_enabled(kind):
        return q, k, v
    dtype = torch.get_autocast_dtype(kind)
    return q.to(dtype), k.to(dtype), v.to(dtype)


def sinks_of(sinks, heads):
    """The sinks as operators take them, or None."""
    if sinks is None:
        return None
    if sinks.shape != (heads,):
        raise ValueError(f"sinks has shape {list(sinks.shape)}: must be [{heads}]")
    return sinks.to(torch.float32).contiguous()


def attention(q, k, v, mask, *, scale=None, softcap=None, alibi_slopes=None, sinks=None, deterministic=None,
              return_lse=False):
    """softmax(scale * q k^T | mask) v, exactly, for each head.

    q: [T, Hq, D] or [B, S, Hq, D]; k: [.., Hkv, D]; v: [.., Hkv, Dv], Hq a multiple of Hkv; bfloat16 or float16, on the
    CPU also float32. Any strides; a view of a fused projection is not copied. mask: a Mask with as many rows and columns
    as there are tokens (Mask.batch for batches), or a Plan. scale: 1 / sqrt(D) by default.
    softcap: scores become softcap * tanh(score / softcap), as in Gemma 2.
    alibi_slopes: a number for each query head, as a sequence or a tensor [Hq] without a gradient. From the score of row i
    and key j, slope * |i + Tk - Tq - j| is subtracted, Tq and Tk being the numbers of rows and keys, as in flash-attn.
    sinks: [Hq], a score for each head that takes its share of every row. deterministic: the same bits on every run;
    by default as torch.are_deterministic_algorithms_enabled() says. A plan has its own scale, softcap, alibi_slopes and
    deterministic.

    Returns o, [.., Hq, Dv]; with return_lse also lse, float32 [Hq, T], the logarithm of each row's sum. Both are
    differentiable. A row that sees no key gives o = 0 and lse = -inf.

    Raises ValueError or TypeError for wrong arguments, NotImplementedError with the reason for what no kernel can do.
    """
    q, k, v = autocast(q, k, v)
    if alibi_slopes is not None and q.dim() == 4 and q.shape[0] > 1 and q.shape[1] != k.shape[1]:
        raise NotImplementedError("alibi_slopes: in a batch longspan has ALiBi only for as many keys as rows")
    if isinstance(mask, Plan):
        if any(x is not None for x in (scale, softcap, alibi_slopes, deterministic)):
            raise ValueError("scale, softcap, alibi_slopes and deterministic belong to the plan: give them to longspan.plan()")
        found = mask
    elif isinstance(mask, Mask):
        if deterministic is None:
            deterministic = torch.are_deterministic_algorithms_enabled()
        found = plan_of(mask, q, k, v, scale, bool(deterministic), torch.is_grad_enabled(), softcap or None, alibi_slopes)
    else:
        raise TypeError(f"mask: must be a longspan.Mask or a longspan.Plan, not {type(mask).__name__}")
    sinks = sinks_of(sinks, q.shape[-2])
    try:
        o, lse = _ops.attention(q, k, v, found.tensor, sinks)
    except RuntimeError:
        if not torch.compiler.is_compiling():
            explain(q, k, v, found, *found.mask.shape)
        raise
    return (o, lse) if return_lse else o


def explain(q, k, v, found, rows, columns):
    """Raises the error of what does not fit a plan for tensors of so many rows and columns. The operator has refused it; only
    then is there time to say more."""
    heads_q, heads_kv = found.heads
    for name, x, count, heads, dim in (("q", q, rows, heads_q, found.head_dim), ("k", k, columns, heads_kv, found.head_dim),
                                       ("v", v, columns, heads_kv, found.head_dim_v)):
        x = _ops.tokens(x, name)
        if x.shape != (count, heads, dim):
            raise ValueError(f"{name} has {list(x.shape)} as [tokens, heads, head_dim]: the mask and the plan need "
                             f"[{count}, {heads}, {dim}]")
        if x.dtype != found.dtype:
            raise TypeError(f"{name} has {x.dtype}: the plan needs {found.dtype}")
        if x.device != found.device:
            raise ValueError(f"{name} is on {x.device}: the plan is for {found.device}")


class _MaskOfLengths:
    """The masks of the last few tensors of cumulative lengths, by the tensors' identity: the values of a tensor on a
    GPU are read once. Not every change of values is counted in a tensor's version (a collective's and a kernel's are not),
    so a kept mask is compared to the values: at once on the CPU, by an assertion of the device on a GPU."""

    MOST = 16

    def __init__(self):
        self._kept = []

    def find(self, cu_q, cu_k, causal, window):
        if cu_q.is_inference() or cu_k is not None and cu_k.is_inference():  # they do not tell of changes
            return Mask.from_cu_seqlens(cu_q, cu_k, causal=causal, window=window)
        settings = (causal, tuple(window))
        for entry in self._kept:
            q, k, versions, values, made_with, mask = entry
            if (q() is cu_q and (k is None) == (cu_k is None) and (k is None or k() is cu_k) and
                    versions == self._versions(cu_q, cu_k) and made_with == settings and self._same(values, cu_q, cu_k)):
                return mask
        mask = Mask.from_cu_seqlens(cu_q, cu_k, causal=causal, window=window)
        values = (cu_q.clone(), None if cu_k is None else cu_k.clone())
        entry = (weakref.ref(cu_q), None if cu_k is None else weakref.ref(cu_k), self._versions(cu_q, cu_k), values, settings,
                 mask)
        self._kept = [entry] + [old for old in self._kept if old[0]() is not None][:self.MOST - 1]
        return mask

    @staticmethod
    def _versions(cu_q, cu_k):
        return cu_q._version, None if cu_k is None else cu_k._version

    @staticmethod
    def _same(values, cu_q, cu_k):
        for kept, now in zip(values, (cu_q, cu_k)):
            if now is None:
                continue
            if now.is_cuda:
                torch._assert_async((kept == now).all(), "cu_seqlens has other values than the mask that was made of it: "
                                    "make a new tensor of lengths for each batch")
            elif not torch.equal(kept, now):
                return False
        return True


mask_of_lengths = _MaskOfLengths().find


def attention_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k=None, *, causal=False, window=(-1, -1), **options):
    """attention() of packed sequences. q [Tq, Hq, D]; k, v [Tk, Hkv, D].

    cu_seqlens_q, cu_seqlens_k: cumulative lengths, integer tensors [sequences + 1]; the same for both by default.
    causal: a row sees no key after it; the last row and key of a sequence are aligned.
    window: (left, right), -1 for no bound.
    options: those of attention(). alibi_slopes of several sequences need as many keys as rows in each.

    The mask of a tensor of lengths is kept for as long as the tensor lives unchanged; to share plans between steps,
    make a Mask.from_cu_seqlens and use attention(). Returns and raises what attention() does.
    """
    mask = mask_of_lengths(cu_seqlens_q, cu_seqlens_k, causal, window)
    if options.get("alibi_slopes") is not None and cu_seqlens_k is not None and len(cu_seqlens_q) > 2 and \
            not torch.equal(cu_seqlens_q, cu_seqlens_k):
        raise NotImplementedError("alibi_slopes: of several sequences longspan has ALiBi only for as many keys as rows")
    return attention(q, k, v, mask, **options)
