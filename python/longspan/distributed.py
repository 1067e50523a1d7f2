"""Context parallelism: one attention over the ranks of a process group, each of which holds a part of the tokens.

    import longspan
    from longspan.distributed import ContextParallel

    cp = ContextParallel(group)                               # or a DeviceMesh; all ranks of the world by default
    place = cp.place(mask, (heads, heads_kv), head_dim)       # who holds which tokens
    x, labels = place.shard(x), place.shard(next_labels)      # shift labels before
    o = cp.attention(q, k, v, place)                          # q [T_r, heads, head_dim], by place.position_ids()
    loss = place.loss_mean(losses, labels != -100)
    loss.backward()
    cp.sum_gradients(model.parameters())

T_r is the number of tokens of this rank. It may differ between ranks, and may be 0. All ranks of a group make the same calls in
the same order. `torchrun --nproc-per-node 2 train.py` starts the ranks.
"""

import ctypes
import math

import torch
import torch.distributed as dist

from longspan import _core, _ops, _parallel_ops
from longspan._attention import autocast, explain, problem_of, sinks_of
from longspan._mask import Mask
from longspan._transport import (Carried, GroupReference, Nccl, all_gather, all_reduce, all_to_all,
                                 device_of_collectives, raise_interrupt)

__all__ = ["ContextParallel", "ParallelPlan", "Placement"]


class ContextParallel:
    """The ranks that share a sequence, and the strategy by which they do. Layers, masks and steps share one object."""

    def __init__(self, group=None, strategy="balanced", *, nodes=1, limit_s=60, check=True, **options):
        """group: a process group, a DeviceMesh of one dimension (mesh["cp"]), or None for all ranks of the world. Tensors on
        the CPU need a group that has gloo; tensors on GPUs get NCCL communicators of their own, whose identifier is
        broadcast over the group.
        strategy: one of "balanced", "ulysses", "ring-p2p", "ring-allgather", "usp", "loongtrain"; `longspan advise` says
        which suits a machine.
        nodes: how many nodes the ranks are on, with as many on each.
        limit_s: the seconds that a rank waits for another one before it raises.
        check: compare over the group, at the first attention of each mask, whether all ranks have the same one. That waits for
        the GPU if the group has no backend for the CPU.
        options: of the strategy, as `longspan plan` lists them: sharding="zigzag", ulysses=4.

        Raises ValueError for wrong values."""
        if hasattr(group, "get_group") and hasattr(group, "mesh"):  # a DeviceMesh
            if group.ndim != 1:
                raise ValueError(f"a mesh of {group.ndim} dimensions: name one, such as mesh['cp']")
            group = group.get_group()
        if not dist.is_initialized():
            raise ValueError("there is no process group: call torch.distributed.init_process_group() first")
        if not 0.001 <= limit_s <= 2592000:
            raise ValueError(f"limit_s {limit_s}: must be from 0.001 to 2592000, which is 30 days")
        group = dist.group.WORLD if group is None else group
        if group is dist.GroupMember.NON_GROUP_MEMBER:
            raise ValueError("this rank is not in the group")
        self._group, self.rank, self.size = GroupReference(group), group.rank(), group.size()
        self.strategy, self.nodes, self.limit_s, self.check = strategy, nodes, limit_s, check
        texts = {name.replace("_", "-"): str(value) for name, value in options.items()}
        self._names = (ctypes.c_char_p * max(1, len(texts)))(*(name.encode() for name in texts))
        self._values = (ctypes.c_char_p * max(1, len(texts)))(*(value.encode() for value in texts.values()))
        self._options = len(texts)
        self._transports = {}  # by device

    @property
    def group(self):
        """The process group. It is not kept alive: dist.destroy_process_group() ends it."""
        return self._group()

    def place(self, mask, heads, head_dim, dtype=torch.bfloat16, *, documents=None):
        """Which tokens each rank holds: a Placement. It depends on the arguments alone, so all ranks find the same without
        communication. It is kept with the mask object, so call it wherever you need it.

        mask: a Mask with as many rows as columns.
        heads: (query heads, KV heads).
        head_dim, dtype: those of the tensors.
        documents: the lengths within which position_ids() counts; by default the blocks of the mask's diagonal, which
        documents are.

        Raises NotImplementedError with the reason if the strategy cannot do it, ValueError or TypeError for wrong arguments."""
        check_mask(mask)
        key = ("placement", self, tuple(heads), head_dim, dtype, None if documents is None else tuple(documents))
        found = mask._plans.get(key)
        if found is None:
            _, problem = problem_of(heads, head_dim, dtype, "cpu", None, False, True)
            made = _core.Placement(mask._masks, problem, self._config())
            found = mask._plans[key] = Placement(self, mask, tuple(heads), head_dim, _Tokens(self, mask, made, documents))
        return found

    def attention(self, q, k, v, place, *, scale=None, softcap=None, sinks=None, deterministic=None, return_lse=False):
        """longspan.attention() over the tokens of all ranks.

        q: [T_r, Hq, D] or [1, T_r, Hq, D], the rows of this rank's tokens in the order of place.token_ids().
        k, v: the same with Hkv heads; v [.., Dv].
        place: a Placement, or a ParallelPlan of it.
        scale, softcap, sinks, deterministic, return_lse: as of longspan.attention(). The gradient of sinks is that of this rank's rows,
        to be summed over the ranks like those of all parameters.

        Returns o, [.., Hq, Dv]; with return_lse also lse, float32 [Hq, T_r]. Raises what longspan.attention() raises, and
        RuntimeError with the reason once a rank has failed, died or kept the others waiting for longer than limit_s. The object
        is then of no more use; a new process group with a new ContextParallel is."""
        try:
            return self._attention(q, k, v, place, scale, softcap, sinks, deterministic, return_lse)
        except (MemoryError, torch.OutOfMemoryError) as error:
            self._tell(q.device, error)
            raise

    def _attention(self, q, k, v, place, scale, softcap, sinks, deterministic, return_lse):
        q, k, v = autocast(q, k, v)
        if isinstance(place, Placement):
            if deterministic is None:
                deterministic = torch.are_deterministic_algorithms_enabled()
            found = place._plan_of(q, v, scale, softcap or None, bool(deterministic), return_lse or sinks is not None)
        elif isinstance(place, ParallelPlan):
            if any(x is not None for x in (scale, softcap, deterministic)):
                raise ValueError("scale, softcap and deterministic belong to the plan: give them to Placement.plan()")
            found = place
        else:
            raise TypeError(f"place: must be a Placement or a ParallelPlan, not {type(place).__name__}")
        if found.cp is not self:
            raise ValueError("the placement is of another ContextParallel")
        sinks = sinks_of(sinks, q.shape[-2])
        try:
            o, lse = _parallel_ops.attention(q, k, v, found.tensor, found.kept_bytes)
        except RuntimeError:
            if not torch.compiler.is_compiling():
                raise_interrupt()
                explain(q, k, v, found, found.count, found.count)
            raise
        if sinks is not None:
            o, lse = _with_sinks(o, lse, sinks)
        return (o, lse) if return_lse else o

    @torch.no_grad()
    def sum_gradients(self, parameters):
        """Adds the gradients of the parameters over the ranks, in place. Each rank's backward pass gives the part of its own
        tokens. A gradient may be missing on some ranks, as of experts that got no tokens; what is missing on all stays so. All
        ranks give the same parameters. Where DDP or FSDP averages gradients over these ranks, multiply the loss by the number of
        ranks instead."""
        alike = {}
        for p in parameters:
            if p.requires_grad:
                alike.setdefault((p.dtype, p.device), []).append(p)
        for (dtype, device), group in alike.items():
            present = torch.tensor([p.grad is not None for p in group], dtype=dtype, device=device)
            flat = torch.cat([present, *((torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in group)])
            self._run(all_reduce, flat)
            ranks_with, *sums = flat.split([len(group), *(p.numel() for p in group)])
            for p, summed, ranks in zip(group, sums, ranks_with):
                if p.grad is not None:
                    p.grad.copy_(summed.view_as(p))
                elif ranks > 0:
                    p.grad = summed.view_as(p).clone()

    def _config(self, kernel="auto", lse_gradient=False):
        return _core.ParallelConfig(self.size, self.nodes, self.strategy.encode(), self._names, self._values, self._options,
                                    kernel.encode(), lse_gradient)

    def _transport(self, device):
        """Made by all ranks together, when tensors of the device first need it."""
        if device not in self._transports:
            self._transports[device] = (Carried(self.group, self.limit_s) if device.type == "cpu" else
                                        Nccl(self.group, self.limit_s, device))
        return self._transports[device]

    def _run(self, collective, *arguments):
        collective(self.group, self.limit_s, *arguments)

    def _tell(self, device, error):
        """Ends the group: the other ranks would wait for this one, which cannot take part."""
        if device in self._transports:
            _core.call("group_fail", self._transports[device].group.handle, (str(error) or repr(error)).encode())

    def _check_agreed(self, digest, device):
        """Raises ValueError unless all ranks have the same number."""
        mine = torch.tensor([digest], device=device_of_collectives(self.group, device))
        numbers = mine.new_empty(self.size)
        self._run(all_gather, numbers, mine)
        numbers = numbers.tolist()
        others = [rank for rank, number in enumerate(numbers) if number != numbers[0]]
        if others:
            raise ValueError(f"ranks {', '.join(map(str, others))} have another mask, heads, dtype, strategy or placement than "
                             "rank 0: all must plan the same attention")


def _with_sinks(o, lse, sinks):
    """(o, lse) with a score for each head that takes its share of every row."""
    column = sinks[:, None]
    share = torch.sigmoid(lse - column).T.reshape(*o.shape[:-1], 1)
    return (o * share).to(o.dtype), torch.logaddexp(lse, column)


def check_mask(mask):
    if not isinstance(mask, Mask):
        raise TypeError(f"mask: must be a longspan.Mask, not {type(mask).__name__}")
    if mask.shape[0] != mask.shape[1]:
        raise ValueError(f"the mask has {list(mask.shape)} rows and columns: a rank holds rows and keys of its tokens, so there "
                         "must be as many of both")


class _Tokens:
    """Which tokens each rank holds. Placements of several masks share one."""

    def __init__(self, cp, mask, made, documents):
        self.cp, self.made, self.total = cp, made, mask.shape[0]
        self.ranges = [made.ranges(rank) for rank in range(cp.size)]
        self.counts = [sum(end - begin for begin, end in ranges) for ranges in self.ranges]
        self.documents = _core.documents(mask._masks) if documents is None else list(documents)
        if sum(self.documents) != self.total or any(length < 0 for length in self.documents):
            raise ValueError(f"documents of {sum(self.documents)} tokens: the mask has {self.total}")
        self._kept = {}  # tensors, by name and device

    def kept(self, name, device, make):
        device = torch.device(device)
        if (name, device) not in self._kept:
            with torch.inference_mode(False):
                self._kept[name, device] = make().to(device)
        return self._kept[name, device]

    def ids(self, rank):
        """int64 [T_r] on the CPU."""
        return torch.cat([torch.arange(*r) for r in self.ranges[rank]] or [torch.arange(0)])

    def all_ids(self):
        """Of all ranks, one after another."""
        return torch.cat([self.ids(rank) for rank in range(self.cp.size)])

    def positions(self):
        starts = torch.tensor([0, *self.documents]).cumsum(0)
        return torch.arange(self.total) - starts[:-1].repeat_interleave(torch.tensor(self.documents))


class Placement:
    """Which tokens each rank holds, for one mask: made by ContextParallel.place(). Tensors of the model, labels and positions
    go through it. Its methods work on any dtype and any trailing shape, and are differentiable."""

    def __init__(self, cp, mask, heads, head_dim, where):
        # Not the mask, which keeps this object: both end, with the plans, once nobody needs the mask.
        self.cp, self._masks, self.heads, self.head_dim, self._tokens = cp, mask._masks, heads, head_dim, where
        self._plans, self._windows = {}, {}
        self._of_models = {}  # placements for masks of models, by their bands: integrations.transformers

    @property
    def mask(self):
        """The mask, as a new object."""
        return Mask(self._masks)

    @property
    def counts(self):
        """The numbers of tokens of all ranks."""
        return list(self._tokens.counts)

    @property
    def count(self):
        """The number of tokens of this rank, T_r."""
        return self._tokens.counts[self.cp.rank]

    def token_ids(self, device="cpu"):
        """int64 [T_r]: where this rank's tokens lie in the sequence."""
        return self._tokens.kept("ids", device, lambda: self._tokens.ids(self.cp.rank))

    def position_ids(self, device="cpu"):
        """int64 [T_r]: where this rank's tokens lie in their documents, for rotary embeddings."""
        return self._tokens.kept("positions", device, lambda: self._tokens.positions()[self.token_ids()])

    def shard(self, x, dim=0):
        """This rank's part of a tensor that all ranks have whole: x with T_r in place of T tokens along `dim`. Its gradient is
        that of this rank's tokens, and zero elsewhere."""
        self._check_length(x, dim, self._tokens.total, "whole")
        ranges = self._tokens.ranges[self.cp.rank]
        if len(ranges) == 1:
            return x.narrow(dim, ranges[0][0], self.count)
        return x.index_select(dim, self.token_ids(x.device))

    def unshard(self, x, dim=0, *, sum_gradients=False):
        """The whole of a sharded tensor, on every rank: the inverse of shard(). All ranks call it.

        sum_gradients: by default all ranks must compute the same with the result, and each keeps the gradient of its own
        tokens. If they compute different things with it, True adds their gradients."""
        self._check_length(x, dim, self.count, "sharded")
        return _Unshard.apply(x.movedim(dim, 0), self._tokens, sum_gradients).movedim(0, dim)

    def roll(self, x, shifts, dim=0):
        """torch.roll() of the whole tensor, from and to shards: with -1 each token gets what the next one of the sequence has.
        All ranks call it."""
        self._check_length(x, dim, self.count, "sharded")
        return _Roll.apply(x.movedim(dim, 0), self._tokens, shifts).movedim(0, dim)

    def loss_mean(self, values, valid=None):
        """The mean over the tokens of all ranks, the same on every rank. Its backward pass gives each rank the gradient of its
        own values, so gradients of parameters are to be summed over the ranks. All ranks call it.

        values: [T_r] or [1, T_r], a loss for each token.
        valid: bool, of the same shape; tokens with False do not count. If none counts, the mean is 0.

        Raises ValueError for other shapes."""
        if tuple(values.shape) not in ((self.count,), (1, self.count)):
            raise ValueError(f"values: shape {list(values.shape)}, and this rank has {self.count} tokens: must be [{self.count}], "
                             'a loss for each, as reduction="none" gives')
        if valid is not None and valid.shape != values.shape:
            raise ValueError(f"valid: shape {list(valid.shape)}, must be that of values, {list(values.shape)}")
        if valid is not None:
            values = torch.where(valid, values, 0)
        return _Mean.apply(values.float(), values.numel() if valid is None else valid.sum(), self.cp)

    def with_mask(self, mask):
        """The same tokens with another mask of the same size: for layers whose masks differ. It is kept with that mask."""
        check_mask(mask)
        if mask.shape[0] != self._tokens.total:
            raise ValueError(f"the mask has {mask.shape[0]} tokens: the placement has {self._tokens.total}")
        if mask._masks is self._masks:
            return self
        key = ("placement", self._tokens, self.heads, self.head_dim)
        if key not in mask._plans:
            mask._plans[key] = Placement(self.cp, mask, self.heads, self.head_dim, self._tokens)
        return mask._plans[key]

    def with_window(self, left=-1, right=-1):
        """The same tokens; of what the mask shows, row i keeps keys i - left to i + right, with -1 for no bound."""
        if (left, right) == (-1, -1):
            return self
        if (left, right) not in self._windows:
            self._windows[left, right] = self.with_mask(self.mask & Mask.window(self._tokens.total, left, right))
        return self._windows[left, right]

    def plan(self, dtype=torch.bfloat16, device=None, *, head_dim_v=None, scale=None, softcap=None, deterministic=False,
             backward=True, lse_gradient=False, kernel="auto"):
        """A ParallelPlan, which ContextParallel.attention() takes in place of the placement: for torch.compile, and to plan
        ahead of time. All ranks call it.

        dtype, device: of the tensors; the current GPU by default if there is one.
        head_dim_v: of v and o, head_dim by default.
        scale: of the scores, 1 / sqrt(head_dim) by default.
        softcap: as of longspan.attention().
        deterministic: the same bits on every run.
        backward: whether gradients are wanted.
        lse_gradient: whether the loss depends on lse: with return_lse or sinks.
        kernel: "auto", or one of `longspan list kernels`.

        Raises what ContextParallel.place() raises, and ValueError if ranks plan different attentions."""
        if device is None:
            device = "cuda" if torch.cuda.is_available() else "cpu"
        device, problem = problem_of(self.heads, self.head_dim, dtype, device, scale, deterministic, backward,
                                     head_dim_v=head_dim_v, softcap=softcap)
        config = self.cp._config(kernel, lse_gradient and backward)
        if self.cp.check:
            digest = ctypes.c_int64()
            _core.call("digest", self._masks.handle, ctypes.byref(problem), ctypes.byref(config),
                       self._tokens.made.handle, ctypes.byref(digest))
            self.cp._check_agreed(digest.value, device)
        try:
            return ParallelPlan(self, problem, config, dtype, device)
        except (ValueError, TypeError, NotImplementedError):  # all ranks find the same
            raise
        except Exception as error:
            self.cp._tell(device, error)
            raise

    def _plan_of(self, q, v, scale, softcap, deterministic, lse_gradient):
        """The plan that is kept for such calls, or a new one."""
        backward = torch.is_grad_enabled()
        key = (q.dtype, q.device, v.shape[-1], scale, softcap, deterministic, lse_gradient and backward)
        found = self._plans.get(key)
        if found is None or backward and not found.backward:
            if torch.compiler.is_compiling():
                raise RuntimeError("a placement must have its plan before torch.compile traces a call: give the call "
                                   "Placement.plan(), or call it once before")
            found = self._plans[key] = self.plan(q.dtype, q.device, head_dim_v=v.shape[-1], scale=scale, softcap=softcap,
                                                 deterministic=deterministic, backward=backward, lse_gradient=lse_gradient)
        return found

    def _check_length(self, x, dim, wanted, what):
        if not -x.dim() <= dim < x.dim() or x.shape[dim] != wanted:
            raise ValueError(f"a {what} tensor has shape {list(x.shape)}: it must have {wanted} tokens along dim {dim}")

    def __repr__(self):
        return (f"<longspan.distributed.Placement of {self._tokens.total} tokens by {self.cp.strategy}, {self.count} on rank "
                f"{self.cp.rank} of {self.cp.size}>")


class ParallelPlan:
    """What the kernels and the schedule of a placement prepare once: made by Placement.plan(). It serves any number of layers
    and steps. `tensor` and `kept_bytes` are how it enters an operator."""

    def __init__(self, placement, problem, config, dtype, device):
        self.cp, self.count, self.dtype, self.device = placement.cp, placement.count, dtype, device
        self.heads, self.head_dim, self.backward = placement.heads, placement.head_dim, bool(problem.backward)
        self.head_dim_v = problem.head_dim_v or problem.head_dim
        transport = placement.cp._transport(device)
        number = _core.ParallelNumber()
        number.keeps = transport
        _core.call("parallel_make", placement._masks.handle, ctypes.byref(problem), ctypes.byref(config),
                   placement._tokens.made.handle, transport.group.handle, number)
        info = _core.ParallelInfo()
        _core.call("parallel_get_info", number[0], ctypes.byref(info))
        self.kept_bytes = info.kept_bytes
        with torch.inference_mode(False):  # the backward pass keeps it
            self.tensor = torch.frombuffer(number, dtype=torch.int64)


# ---- what moves between ranks outside of attention: rows of dim 0, as bytes ----

def _bytes_of(x):
    """uint8 [rows, bytes]; backends lack some dtypes."""
    rows = x.new_empty((x.shape[0], math.prod(x.shape[1:])))  # dense even where a dimension has one element
    rows.view(x.shape).copy_(x.detach())
    return rows.view(torch.uint8)


def _from_bytes(rows, like):
    """rows as a tensor of the dtype and trailing shape of `like`."""
    shape = (rows.shape[0], *like.shape[1:])
    return rows.view(like.dtype).view(shape) if rows.numel() else like.new_empty(shape)


class _Unshard(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, where, sum_gradients):
        ctx.where, ctx.sum_gradients = where, sum_gradients
        most, size = max(where.counts), where.cp.size
        row_bytes = math.prod(x.shape[1:]) * x.element_size()
        mine = torch.zeros((most, row_bytes), dtype=torch.uint8, device=x.device)
        mine[:x.shape[0]] = _bytes_of(x)
        all_rows = mine.new_empty((size * most, row_bytes))
        where.cp._run(all_gather, all_rows, mine)

        def order():  # of each token of the sequence, its row among those of all ranks
            rows = torch.cat([rank * most + torch.arange(count) for rank, count in enumerate(where.counts)])
            return torch.empty_like(rows).scatter_(0, where.all_ids(), rows)

        return _from_bytes(all_rows[where.kept("order", x.device, order)], x)

    @staticmethod
    def backward(ctx, gradient):
        where = ctx.where
        if ctx.sum_gradients:
            gradient = gradient.contiguous().clone()
            where.cp._run(all_reduce, gradient)
        return gradient[where.kept("ids", gradient.device, lambda: where.ids(where.cp.rank))], None, None


class _Roll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, where, shifts):
        ctx.where, ctx.shifts = where, shifts
        return _rolled(x, where, shifts)

    @staticmethod
    def backward(ctx, gradient):
        return _rolled(gradient, ctx.where, -ctx.shifts), None, None


def _rolled(x, where, shifts):
    shifts = shifts % max(1, where.total)

    def split():
        """My rows that each rank wants, and my rows that come from each rank; then how many."""
        rank_of = torch.empty(where.total, dtype=torch.int64)
        row_of = torch.empty(where.total, dtype=torch.int64)
        for rank in range(where.cp.size):
            ids = where.ids(rank)
            rank_of[ids], row_of[ids] = rank, torch.arange(len(ids))
        me = where.cp.rank
        sent = []
        for rank in range(where.cp.size):
            wanted = (where.ids(rank) - shifts) % max(1, where.total)
            sent.append(row_of[wanted[rank_of[wanted] == me]])
        sources = rank_of[(where.ids(me) - shifts) % max(1, where.total)]
        received = [(sources == rank).nonzero()[:, 0] for rank in range(where.cp.size)]
        return sent, received

    key = ("roll", shifts)
    if key not in where._kept:
        where._kept[key] = split()
    sent, received = where._kept[key]
    index = lambda name, rows: where.kept((key, name), x.device, lambda: torch.cat(rows))
    leaving = _bytes_of(x)[index("sent", sent)]
    arriving = leaving.new_empty((where.counts[where.cp.rank], leaving.shape[1]))
    where.cp._run(all_to_all, arriving, leaving, [len(rows) for rows in received], [len(rows) for rows in sent])
    out = torch.empty_like(arriving)
    out[index("received", received)] = arriving
    return _from_bytes(out, x)


class _Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values, count, cp):
        sums = torch.stack([values.sum(dtype=torch.float64), torch.as_tensor(count, device=values.device).double()])
        cp._run(all_reduce, sums)
        ctx.count, ctx.shape = sums[1].clamp(min=1), values.shape
        return (sums[0] / ctx.count).float()

    @staticmethod
    def backward(ctx, gradient):
        return (gradient / ctx.count).float().expand(ctx.shape), None, None
