"""PyTorch's operators longspan::parallel_attention, _forward and _backward: shapes for the compiler, gradients."""

import torch

from longspan import _ops, _transport

differentiable = torch.ops.longspan.parallel_attention.default  # for the compiler
forward = torch.ops.longspan.parallel_forward.default
backward = torch.ops.longspan.parallel_backward.default


@torch.library.register_fake("longspan::parallel_attention")
@torch.library.register_fake("longspan::parallel_forward")
def _(q, k, v, plan, kept_bytes):
    return (q.new_empty((*q.shape[:2], v.shape[2])), q.new_empty((q.shape[1], q.shape[0]), dtype=torch.float32),
            q.new_empty((kept_bytes,), dtype=torch.uint8))


@torch.library.register_fake("longspan::parallel_backward")
def _(dout, dlse, q, k, v, o, lse, kept, plan):
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _setup(ctx, inputs, output):
    q, k, v, plan, _ = inputs
    ctx.save_for_backward(q, k, v, *output, plan)
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[2])


def _backward(ctx, dout, dlse, _=None):
    q, k, v, o, lse, kept, plan = ctx.saved_tensors
    # A rank that skipped the pass would be missed.
    dout = torch.zeros_like(o) if dout is None else _ops.dense(_ops.shaped(dout, o.shape))
    try:
        return *backward(dout, _ops.dense(dlse), q, k, v, o, lse, kept, plan), None, None
    except RuntimeError:
        _transport.raise_interrupt()
        raise


torch.library.register_autograd("longspan::parallel_attention", _backward, setup_context=_setup)


class _Eager(torch.autograd.Function):
    """The same in eager mode, where a Function costs less time than a registered gradient. Batches are flattened here, so that
    autograd records no views."""

    @staticmethod
    def forward(ctx, q, k, v, plan, kept_bytes):
        shapes = ctx.shapes = q.shape, k.shape, v.shape
        q, k, v = _ops.tokens(q, "q"), _ops.tokens(k, "k"), _ops.tokens(v, "v")
        o, lse, kept = forward(q, k, v, plan, kept_bytes)
        ctx.save_for_backward(q, k, v, o, lse, kept, plan)
        ctx.set_materialize_grads(False)
        return _ops.like_rows(o, shapes[0]), lse

    @staticmethod
    def backward(ctx, dout, dlse):
        return _ops.first_derivatives(lambda: _ops.like_inputs(ctx, _backward(ctx, dout, dlse)))


def attention(q, k, v, plan, kept_bytes):
    """(o, lse), differentiable. q [T_r, Hq, D] or [1, T_r, Hq, D], k and v likewise; o is like q, lse [Hq, T_r]."""
    compiling = torch.compiler.is_compiling()
    if torch.is_grad_enabled() and not compiling:
        return _Eager.apply(q, k, v, plan, kept_bytes)
    run, kept_bytes = (differentiable, kept_bytes) if torch.is_grad_enabled() else (forward, 0)
    o, lse, _ = run(_ops.tokens(q, "q"), _ops.tokens(k, "k"), _ops.tokens(v, "v"), plan, kept_bytes)
    return _ops.like_rows(o, q.shape), lse
