"""The operators under PyTorch's own checks, and torch.compile."""

import pytest
import torch
from torch._dynamo.testing import CompileCounter

import longspan
from conftest import inputs
from longspan import Mask


def plan_of(mask, **options):
    return longspan.plan(mask, (4, 2), 64, torch.float32, "cpu", **options)


def test_opcheck():
    q, k, v = inputs(50, 50)
    plan = plan_of(Mask.causal(50))
    torch.library.opcheck(torch.ops.longspan.attention.default, (q, k, v, plan.tensor))
    o, lse = torch.ops.longspan.attention(q, k, v, plan.tensor)
    fixed = [x.detach() for x in (q, k, v, o, lse)]
    torch.library.opcheck(torch.ops.longspan.forward.default, (*fixed[:3], plan.tensor))
    for dlse in (None, torch.randn_like(fixed[4])):
        torch.library.opcheck(torch.ops.longspan.backward.default, (torch.randn_like(fixed[3]), dlse, *fixed, plan.tensor))


def test_sinks():
    q, k, v = inputs(50, 50)
    plan = plan_of(Mask.causal(50))
    sinks = torch.randn(4, requires_grad=True)
    torch.library.opcheck(torch.ops.longspan.attention.default, (q, k, v, plan.tensor, sinks))
    o, lse = torch.ops.longspan.attention(q, k, v, plan.tensor, sinks)
    fixed = [x.detach() for x in (q, k, v, o, lse)]
    for dlse in (None, torch.randn_like(lse)):
        torch.library.opcheck(torch.ops.longspan.backward_with_sinks.default,
                              (torch.randn_like(o), dlse, *fixed, plan.tensor, sinks.detach()))

    def layer(q, k, v, plan, sinks):
        return longspan.attention(q, k, v, plan, sinks=sinks).sin()

    parts = (q, k, v, sinks)
    eager = layer(q, k, v, plan, sinks)
    compiled = torch.compile(layer, fullgraph=True)(q, k, v, plan, sinks)
    torch.testing.assert_close(eager, compiled)
    torch.testing.assert_close(torch.autograd.grad(eager.sum(), parts), torch.autograd.grad(compiled.sum(), parts))


def test_head_dim_of_values():
    q, k, v = inputs(50, 50, head_dim_v=24)
    plan = plan_of(Mask.causal(50), head_dim_v=24, softcap=2.0, alibi_slopes=[0.1, 0.2, 0.3, 0.4])
    torch.library.opcheck(torch.ops.longspan.forward.default, (q, k, v, plan.tensor))
    o, lse = torch.ops.longspan.forward(q, k, v, plan.tensor)
    fixed = [x.detach() for x in (q, k, v, o, lse)]
    torch.library.opcheck(torch.ops.longspan.backward.default, (torch.randn_like(fixed[3]), None, *fixed, plan.tensor))

    def layer(q, k, v, plan):
        return longspan.attention(q, k, v, plan).sin()

    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    for ours, theirs in zip(torch.autograd.grad(compiled(q, k, v, plan).sum(), (q, k, v)),
                            torch.autograd.grad(layer(q, k, v, plan).sum(), (q, k, v))):
        torch.testing.assert_close(ours, theirs)


def test_other_plans_do_not_compile_again():
    counter = CompileCounter()

    def layer(q, k, v, plan):
        o, lse = longspan.attention(q * 2, k, v, plan, return_lse=True)
        return o.sin() + lse.T[:, :, None]

    compiled = torch.compile(layer, backend=counter, fullgraph=True)
    for i in range(7):
        q, k, v = inputs(80, 80, seed=i)
        mask = Mask.documents([10 + 5 * i, 3, 67 - 5 * i])
        assert torch.equal(compiled(q, k, v, plan_of(mask)), layer(q, k, v, plan_of(mask)))
    assert counter.frame_count == 1


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_gradients(backend):
    def layer(q, k, v, plan):
        return longspan.attention(q, k, v, plan).sin()

    compiled = torch.compile(layer, backend=backend, fullgraph=True)
    for i in range(2):
        parts, plan = inputs(80, 80, seed=i), plan_of(Mask.documents([30 + i, 50 - i]))
        for ours, theirs in zip(torch.autograd.grad(compiled(*parts, plan).sum(), parts),
                                torch.autograd.grad(layer(*parts, plan).sum(), parts)):
            torch.testing.assert_close(ours, theirs)


def test_masks_need_a_plan():
    def layer(q, k, v, mask):
        return longspan.attention(q, k, v, mask)

    parts, mask = inputs(30, 30), Mask.causal(30)
    with pytest.raises(Exception, match="longspan.plan"):
        torch.compile(layer, backend="eager", fullgraph=True)(*parts, mask)


def test_what_a_plan_was_not_made_for():
    q, k, v = (x.detach() for x in inputs(30, 30))
    plan = plan_of(Mask.causal(30))
    forward = torch.ops.longspan.forward
    for call, words in [
        (lambda: forward(q[:20], k, v, plan.tensor), "q has shape"),
        (lambda: forward(q, k.half(), v, plan.tensor), "k has another dtype"),
        (lambda: forward(q, k, v, plan.tensor.to(torch.int32)), "plan must be"),
        (lambda: forward(q, k, v, torch.tensor([12345678])), "does not exist"),
        (lambda: forward(q.transpose(0, 2).contiguous().transpose(0, 2), k, v, plan.tensor), "not contiguous"),
    ]:
        with pytest.raises(RuntimeError, match=words):
            call()
    o, lse = forward(q, k, v, plan.tensor)
    only = plan_of(Mask.causal(30), backward=False)
    with pytest.raises(RuntimeError, match="no backward pass"):
        torch.ops.longspan.backward(o, None, q, k, v, o, lse, only.tensor)
