"""PyTorch's operators longspan::forward and longspan::backward: loading, shapes for the compiler, gradients."""

import pathlib

import torch

from longspan import _core  # noqa: F401  (the library of the operators needs the one that this loads)

torch.ops.load_library(str(pathlib.Path(__file__).parent / "liblongspan_torch.so"))
forward = torch.ops.longspan.forward.default
backward = torch.ops.longspan.backward.default


@torch.library.register_fake("longspan::forward")
def _(q, k, v, plan):
    return q.new_empty(q.shape), q.new_empty((q.shape[1], q.shape[0]), dtype=torch.float32)


@torch.library.register_fake("longspan::backward")
def _(dout, dlse, q, k, v, o, lse, plan):
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def dense(x):
    """Gradients may arrive in any layout: the sum's is one expanded number."""
    return x if x is None else x.contiguous()


def _setup(ctx, inputs, output):
    q, k, v, plan = inputs
    ctx.save_for_backward(q, k, v, *output, plan)
    ctx.set_materialize_grads(False)


def _backward(ctx, dout, dlse):
    q, k, v, o, lse, plan = ctx.saved_tensors
    if dout is None and dlse is None:
        return None, None, None, None
    dout = torch.zeros_like(o) if dout is None else dense(dout)
    return *backward(dout, dense(dlse), q, k, v, o, lse, plan), None


torch.library.register_autograd("longspan::forward", _backward, setup_context=_setup)


class _AnyTransform(torch.autograd.Function):
    """The same in eager mode, where a Function costs less time than a registered gradient."""

    forward = staticmethod(forward)
    setup_context = staticmethod(_setup)
    backward = staticmethod(torch.autograd.function.once_differentiable(_backward))


class _Eager(torch.autograd.Function):
    """The same without torch.func's transforms, in half the time: PyTorch binds the arguments of a Function with a
    setup_context by their names."""

    @staticmethod
    def forward(ctx, q, k, v, plan):
        output = forward(q, k, v, plan)
        _setup(ctx, (q, k, v, plan), output)
        return output

    @staticmethod
    def backward(ctx, dout, dlse):
        if not torch.is_grad_enabled():
            return _backward(ctx, dout, dlse)
        with torch.no_grad():
            gradients = _backward(ctx, dout, dlse)
        # create_graph: what depends on these gradients must not lose its part of the second derivatives without a word.
        later = torch._C._functions.DelayedError("longspan.attention has no second derivatives", len(gradients))
        return later(*(x if x is None else x.detach().requires_grad_() for x in gradients))


def attention(q, k, v, plan):
    """(o, lse), differentiable."""
    if torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return forward(q, k, v, plan)
    if torch._C._are_functorch_transforms_active():
        return _AnyTransform.apply(q, k, v, plan)
    return _Eager.apply(q, k, v, plan)
