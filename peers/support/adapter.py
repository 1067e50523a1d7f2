"""What an adapter is made of."""

import dataclasses


class Unsupported(Exception):
    """The peer cannot do this exactly; the text says what it can: shown as `skipped: ...`."""


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
    backward: bool  # will be asked for, too
    deterministic: bool = False  # the same bits on every run are demanded

    @property
    def group(self):
        return self.heads_q // self.heads_kv


def one_mask(masks):
    if len(masks) != 1:
        raise Unsupported("has one mask for all heads")
    return masks[0]


def need_dtype(problem, *names):
    if problem.dtype not in names:
        raise Unsupported(f"has no {problem.dtype}; it has {', '.join(names)}")


def need_seen_rows(mask):
    if not mask.every_row_sees():
        raise Unsupported("gives no result for a row that sees no key")


class Plan:
    """The peer's kernel, ready for one problem.

    forward(q, k, v) takes [tokens, heads, head_dim] and gives o, of q's shape; it keeps what the other two read. lse() is
    that of the last forward, natural logarithm, [heads_q, tokens_q]; it is never timed. backward(dout) is the gradient of
    the last forward: (dq, dk, dv), of the inputs' shapes. What is only another order of axes is a view and costs nothing;
    nothing is converted inside the timed region for longspan's sake.
    """

    def prepare(self, q, k, v, dout):
        """Called before the first run on these tensors, untimed (dout is None in a forward case): a plan may bring them into
        the layout that its kernel wants, and work on those copies. `settings` says so."""

    settings = ""  # which of its options were chosen, for the record
    drift_keys = 0  # after how many keys the kernel multiplies its sum by a rounded 1 (docs/concepts/proof.md, "The tolerance")


class Peer:
    """The base of each class `Adapter`. `plan(problem, masks, device)` gives a Plan or raises Unsupported. An adapter that needs a device
    of its own has `open_device(index, flush_bytes)`, too; without it, support/devices.py opens the one that PEER names."""

    # Whether `plan` heeds `problem.deterministic`: it asks the framework for the same bits on every run, or refuses where there is no
    # such form. Where nobody has found out which of the two holds, the worker refuses.
    heeds_deterministic = False

    def versions(self):
        """{package: version}, where that says more than the version of PEER's package."""
        return {}

    def check(self, problem, masks, device):
        """Raises Unsupported where `plan` would: to be overridden where planning takes long, as where it compiles."""
        self.plan(problem, masks, device)

    def begin_case(self):
        """Called before each case, so that the one before leaves nothing behind."""

    def read_mask(self, mask):
        from support.masks import Mask

        return Mask.from_json(mask)
