"""PyTorch's operators longspan::attention, forward and backward: loading, shapes for the compiler, gradients."""

import pathlib

import torch

from longspan import _core  # noqa: F401  (the library of the operators needs the one that this loads)

torch.ops.load_library(str(pathlib.Path(__file__).parent / "liblongspan_torch.so"))
differentiable = torch.ops.longspan.attention.default  # for transforms and the compiler
forward = torch.ops.longspan.forward.default  # the same without gradients, in half the host's time
backward = torch.ops.longspan.backward.default
backward_with_sinks = torch.ops.longspan.backward_with_sinks.default


@torch.library.register_fake("longspan::attention")
@torch.library.register_fake("longspan::forward")
def _(q, k, v, plan, sinks=None):
    return q.new_empty((*q.shape[:2], v.shape[2])), q.new_empty((q.shape[1], q.shape[0]), dtype=torch.float32)


@torch.library.register_fake("longspan::backward")
def _(dout, dlse, q, k, v, o, lse, plan):
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


@torch.library.register_fake("longspan::backward_with_sinks")
def _(dout, dlse, q, k, v, o, lse, plan, sinks):
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape), sinks.new_empty(sinks.shape)


def tokens(x, name):
    """[T, H, D] of [T, H, D] or [B, S, H, D], without a copy where strides allow it."""
    dim = x.dim()
    if dim == 4:
        x = x.flatten(0, 1)
    elif dim != 3:
        raise ValueError(f"{name} has shape {list(x.shape)}: must be [tokens, heads, head_dim] or [batch, tokens, "
                         "heads, head_dim]")
    return x if x.stride(2) == 1 else x.contiguous()


def shaped(x, shape):
    return x if x.shape == shape else x.view(shape)


def like_rows(o, shape):
    """o in the shape of q, but for the head_dim, which is v's."""
    return o if len(shape) == 3 else o.view(*shape[:-1], o.shape[-1])


def dense(x):
    """Gradients may arrive in any layout: the sum's is one expanded number."""
    return x if x is None else x.contiguous()


def _setup(ctx, inputs, output):
    q, k, v, plan, sinks = inputs
    ctx.save_for_backward(q, k, v, *output, plan, sinks)
    ctx.set_materialize_grads(False)


def _backward(ctx, dout, dlse):
    q, k, v, o, lse, plan, sinks = ctx.saved_tensors
    if dout is None and dlse is None:
        return None, None, None, None, None
    dout = torch.zeros_like(o) if dout is None else dense(shaped(dout, o.shape))
    of_rows = dout, dense(dlse), q, k, v, o, lse, plan
    if sinks is None or not ctx.needs_input_grad[4]:
        return *backward(*of_rows), None, None
    dq, dk, dv, dsinks = backward_with_sinks(*of_rows, sinks)
    return dq, dk, dv, None, dsinks


torch.library.register_autograd("longspan::attention", _backward, setup_context=_setup)


class _AnyTransform(torch.autograd.Function):
    """The same in eager mode, where a Function costs less time than a registered gradient."""

    forward = staticmethod(forward)
    setup_context = staticmethod(_setup)
    backward = staticmethod(torch.autograd.function.once_differentiable(_backward))


class _Eager(torch.autograd.Function):
    """The same without torch.func's transforms, in half the time: PyTorch binds the arguments of a Function with a
    setup_context by their names. Batches are flattened here, so that autograd records no views."""

    @staticmethod
    def forward(ctx, q, k, v, plan, sinks):
        shapes = ctx.shapes = q.shape, k.shape, v.shape
        q, k, v = tokens(q, "q"), tokens(k, "k"), tokens(v, "v")
        o, lse = forward(q, k, v, plan, sinks)
        ctx.save_for_backward(q, k, v, o, lse, plan, sinks)
        ctx.set_materialize_grads(False)
        return like_rows(o, shapes[0]), lse

    @staticmethod
    def backward(ctx, dout, dlse):
        return first_derivatives(lambda: like_inputs(ctx, _backward(ctx, dout, dlse)))


def first_derivatives(gradients_of):
    """The gradients that the function gives."""
    if not torch.is_grad_enabled():
        return gradients_of()
    with torch.no_grad():
        gradients = gradients_of()
    # create_graph: what depends on these gradients must not lose its part of the second derivatives without a word.
    later = torch._C._functions.DelayedError("longspan.attention has no second derivatives", len(gradients))
    return later(*(x if x is None else x.detach().requires_grad_() for x in gradients))


def like_inputs(ctx, gradients):
    dq, dk, dv, *rest = gradients
    if dq is None:
        return gradients
    of_q, of_k, of_v = ctx.shapes
    return shaped(dq, of_q), shaped(dk, of_k), shaped(dv, of_v), *rest


def attention(q, k, v, plan, sinks=None):
    """(o, lse), differentiable. q [T, Hq, D] or [B, S, Hq, D], k and v likewise; o is like q, lse [Hq, T]. sinks: float32
    [Hq], or None."""
    compiling = torch.compiler.is_compiling()
    trains = torch.is_grad_enabled()
    if trains and not compiling and not torch._C._are_functorch_transforms_active():
        return _Eager.apply(q, k, v, plan, sinks)
    run = differentiable if compiling else _AnyTransform.apply if trains else forward
    o, lse = run(tokens(q, "q"), tokens(k, "k"), tokens(v, "v"), plan, sinks)
    return like_rows(o, q.shape), lse
