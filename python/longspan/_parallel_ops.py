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


def _backward(ctx, dout, dlse, _):
    q, k, v, o, lse, kept, plan = ctx.saved_tensors
    dout = torch.zeros_like(o) if dout is None else dout.contiguous()  # a rank that skipped the pass would be missed
    try:
        return *backward(dout, _ops.dense(dlse), q, k, v, o, lse, kept, plan), None, None
    except RuntimeError:
        _transport.raise_interrupt()
        raise


torch.library.register_autograd("longspan::parallel_attention", _backward, setup_context=_setup)


class _Eager(torch.autograd.Function):
    """The same in eager mode, where a Function costs less time than a registered gradient."""

    @staticmethod
    def forward(ctx, q, k, v, plan, kept_bytes):
        output = forward(q, k, v, plan, kept_bytes)
        _setup(ctx, (q, k, v, plan, kept_bytes), output)
        return output

    backward = staticmethod(torch.autograd.function.once_differentiable(_backward))


def attention(q, k, v, plan, kept_bytes):
    """(o, lse), differentiable."""
    if not torch.is_grad_enabled():
        return forward(q, k, v, plan, 0)[:2]
    run = differentiable if torch.compiler.is_compiling() else _Eager.apply
    return run(q, k, v, plan, kept_bytes)[:2]
