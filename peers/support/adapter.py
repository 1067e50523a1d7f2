"""The base classes and helpers of adapters."""

import dataclasses


class Unsupported(Exception):
    """The peer cannot compute this exactly. The text says what it supports and is shown as `skipped: ...`."""


@dataclasses.dataclass
class Problem:
    """As attention/problem.h, without the masks."""

    tokens_q: int
    tokens_kv: int
    heads_q: int
    heads_kv: int
    head_dim: int
    dtype: str  # "bf16", "f16", "f32"
    scale: float
    backward: bool  # the backward pass will be requested, too
    deterministic: bool = False  # the same bits on every run are required
    head_dim_v: int = 0  # of v and o; 0: head_dim
    sinks: tuple = ()  # a score for each query head that joins the softmax of each row without a value; empty: none

    def __post_init__(self):
        self.head_dim_v = self.head_dim_v or self.head_dim

    @property
    def group(self):
        return self.heads_q // self.heads_kv


def one_mask(masks):
    if len(masks) != 1:
        raise Unsupported("supports only one mask for all heads")
    return masks[0]


def need_dtype(problem, *names):
    if problem.dtype not in names:
        raise Unsupported(f"does not support {problem.dtype}; it supports {', '.join(names)}")


def need_seen_rows(mask):
    if not mask.every_row_sees():
        raise Unsupported("gives no result for rows that see no key")


class Plan:
    """The peer's kernel, ready for one problem.

    forward(q, k, v) takes [tokens, heads, head_dim] and returns o, with q's shape (and v's head_dim). It keeps what lse and backward need. lse()
    returns the natural log-sum-exp of the last forward, with sinks, [heads_q, tokens_q]; it is never timed. backward(dout) returns the
    gradients of the last forward, (dq, dk, dv), with the inputs' shapes; with sinks it computes their gradients, too. A different order of
    axes is a view and costs nothing. Nothing is converted inside the timed region for longspan's sake.
    """

    def prepare(self, q, k, v, dout):
        """Called before the first run on these tensors, untimed; dout is None in a forward case. A plan may copy them into the
        layout of its kernel and work on the copies. `settings` must say so."""

    settings = ""  # the options that were chosen, for the record
    drift_keys = 0  # number of keys after which the kernel multiplies its sum by a rounded 1 (docs/concepts/proof.md, "The tolerance")


class Peer:
    """The base of each class `Adapter`. `plan(problem, masks, device)` returns a Plan or raises Unsupported. An adapter that needs its
    own device also defines `open_device(index, flush_bytes)`; otherwise support/devices.py opens the device that PEER names."""

    # Whether `plan` heeds `problem.deterministic`: it requests the same bits on every run from the framework, or raises Unsupported if
    # that is impossible. If it is unknown which of the two holds, leave this False; the worker then refuses.
    heeds_deterministic = False

    # Whether `plan` supports v and o of another head dimension than q and k. The worker refuses such problems if this is False.
    takes_head_dim_v = False

    # Whether `plan` heeds `problem.sinks`. The worker refuses problems with sinks if this is False.
    takes_sinks = False

    def versions(self):
        """{package: version}, if the version of PEER's package is not enough."""
        return {}

    def check(self, problem, masks, device):
        """Raises Unsupported if `plan` would. Override this if planning is slow, for example if it compiles."""
        self.plan(problem, masks, device)

    def begin_case(self):
        """Called before each case, to drop everything of the previous one."""

    def read_mask(self, mask):
        from support.masks import Mask

        return Mask.from_json(mask)
