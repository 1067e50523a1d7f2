"""Attention and its gradients, for every kind of mask and dtype, against plain PyTorch in fp64."""

import gc
import resource

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import longspan
from conftest import DEVICES, GRADIENT_TOLERANCE, assert_alike, gradients, inputs, largest, reference
from longspan import Mask

MASKS = {
    "full": lambda: Mask.full(150),
    "causal": lambda: Mask.causal(150),
    "window": lambda: Mask.window(150, 20, 5),
    "documents": lambda: Mask.documents([70, 1, 30, 49]),
    "tree": lambda: Mask.tree([-1, 0, 0, 2, -1], [40, 30, 30, 30, 20]),
    "shared_question": lambda: Mask.shared_question([50, 40, 60]),
    "cu_seqlens": lambda: Mask.from_cu_seqlens([0, 60, 150], [0, 100, 180], causal=True),
    "ranges": lambda: Mask.from_ranges([(0, 100), (100, 150)], [(0, 100), (30, 150)], ["causal", "both"]),
    "dense": lambda: Mask.from_dense(torch.rand(150, 170, generator=torch.Generator().manual_seed(3)) < 0.4),
    "blocks": lambda: Mask.block_sparse(torch.rand(2, 10, 10, generator=torch.Generator().manual_seed(4)) < 0.5, 15),
    "heads": lambda: Mask.per_head([Mask.causal(150), Mask.window(150, 9, 9)]),
    "batch": lambda: Mask.batch([Mask.causal(75), Mask.full(75)]),
    "rows without keys": lambda: Mask.from_bands([(20, 90, 30, 100, Mask.UNBOUNDED_BELOW, 10)], 150),
    "and": lambda: Mask.documents([75, 75]) & Mask.window(150, 30, 30),
}
# What holds where plain PyTorch is exact by chance.
FLOOR = {torch.float32: 1e-6, torch.bfloat16: 4e-3, torch.float16: 5e-4}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", MASKS)
def test_every_mask(name, dtype, device):
    if device == "cuda" and dtype == torch.float32:
        pytest.skip("no kernel for GPUs takes float32")
    mask = MASKS[name]()
    parts = inputs(*mask.shape, dtype=dtype, device=device)
    visible = mask.to_dense()
    truth = reference(*parts, visible)
    true_gradients = gradients(*truth, parts)
    plain = reference(*parts, visible, dtype=dtype)
    plain_gradients = gradients(*plain, parts)
    o, lse = longspan.attention(*parts, mask, return_lse=True)
    assert o.dtype == dtype and lse.dtype == torch.float32
    assert torch.equal(torch.isfinite(lse), torch.isfinite(truth[1]))
    for ours, theirs, true in zip([o, lse, *gradients(o, lse, parts)], [*plain, *plain_gradients],
                                  [*truth, *true_gradients]):
        size = float(true[torch.isfinite(true)].abs().max())
        assert largest(ours, true) <= 2 * largest(theirs, true) + FLOOR[dtype] * size


@pytest.mark.parametrize("device", DEVICES)
def test_views_of_a_fused_projection(device):
    generator = torch.Generator().manual_seed(0)
    qkv = torch.randn(2, 60, 8, 64, generator=generator).to(device, torch.bfloat16).requires_grad_()
    q, k, v = qkv[:, :, :4], qkv[:, :, 4:6], qkv[:, :, 6:]
    mask = Mask.batch([Mask.causal(60), Mask.window(60, 10, 0)])
    o = longspan.attention(q, k, v, mask)
    assert o.shape == (2, 60, 4, 64)
    flat = [x.reshape(120, -1, 64) for x in (q, k, v)]
    assert all(x.data_ptr() == y.data_ptr() for x, y in zip(flat, (q, k, v))), "reshape copied"
    expected, lse = reference(*flat, mask.to_dense())
    ours, = torch.autograd.grad(o.sum(), qkv)
    theirs, = torch.autograd.grad(expected.sum(), qkv)
    assert_alike([o.reshape(120, 4, 64), ours], [expected, theirs], mask, ("o", "dqkv"))


@pytest.mark.parametrize("name", ["causal", "heads", "rows without keys"])
def test_scale_and_sinks(name):
    mask = MASKS[name]()
    q, k, v = inputs(*mask.shape)
    sinks = torch.randn(4, requires_grad=True)
    o, lse = longspan.attention(q, k, v, mask, scale=0.3, sinks=sinks, return_lse=True)
    plain, plain_lse = reference(q, k, v, mask.to_dense(), 0.3)
    whole = torch.logaddexp(plain_lse, sinks.double()[:, None])
    expected = plain * torch.exp(plain_lse - whole).T[:, :, None]
    assert largest(o, expected) < 1e-5 and largest(lse, whole) < 1e-5
    for ours, theirs in zip(gradients(o, lse, (q, k, v, sinks)), gradients(expected, whole, (q, k, v, sinks))):
        assert largest(ours, theirs.double()) < 1e-4


def test_sinks_of_another_dtype_alone():
    mask = Mask.window(70, 20, 0)
    q, k, v = (x.detach() for x in inputs(70, 70))
    sinks = torch.randn(4).bfloat16().requires_grad_()
    o = longspan.attention(q, k, v, mask, sinks=sinks)
    gradient, = torch.autograd.grad(o.square().sum(), sinks)
    plain, lse = reference(q, k, v, mask.to_dense())
    expected = plain * torch.sigmoid(lse - sinks.double()[:, None]).T[:, :, None]
    true, = torch.autograd.grad(expected.square().sum(), sinks)
    assert gradient.dtype == torch.bfloat16
    torch.testing.assert_close(gradient.float(), true.float(), rtol=1e-2, atol=1e-3)


SLOPES = [0.5, 0.25, 0.125, 0.0625]
FEATURES = [{"head_dim_v": 32}, {"head_dim_v": 96}, {"softcap": 0.7}, {"softcap": 20.0}, {"alibi_slopes": SLOPES},
            {"head_dim_v": 8, "softcap": 3.0, "alibi_slopes": SLOPES}]


@pytest.mark.parametrize("features", FEATURES, ids=str)
@pytest.mark.parametrize("name", ["causal", "cu_seqlens", "dense", "heads", "rows without keys"])
def test_features(name, features):
    mask = MASKS[name]()
    parts = inputs(*mask.shape, head_dim_v=features.get("head_dim_v"))
    settings = {name: value for name, value in features.items() if name != "head_dim_v"}
    truth = reference(*parts, mask.to_dense(), 0.3, **settings)
    true_gradients = gradients(*truth, parts)
    sinks = torch.randn(4, requires_grad=True)
    for found in (mask, longspan.plan(mask, (4, 2), 64, torch.float32, "cpu", scale=0.3, **features)):
        given = {"scale": 0.3, **settings} if found is mask else {}
        o, lse = longspan.attention(*parts, found, return_lse=True, **given)
        assert o.shape == truth[0].shape
        for ours, true in zip([o, lse, *gradients(o, lse, parts)], [*truth, *true_gradients]):
            assert largest(ours, true) <= 2e-5 * max(1, float(true[torch.isfinite(true)].abs().max()))
        with_sinks, _ = longspan.attention(*parts, found, sinks=sinks, return_lse=True, **given)
        share = torch.sigmoid(truth[1] - sinks[:, None]).T[:, :, None]
        assert largest(with_sinks, truth[0] * share) < 2e-5


def test_features_have_plans_of_their_own():
    mask, parts = Mask.causal(40), inputs(40, 40)
    plain = longspan.attention(*parts, mask)
    slopes = torch.tensor(SLOPES)
    others = [longspan.attention(*parts, mask, **options)
              for options in ({"softcap": 1.0}, {"softcap": 2.0}, {"alibi_slopes": slopes}, {"alibi_slopes": SLOPES[::-1]})]
    assert all(not torch.equal(a, b) for i, a in enumerate(others) for b in [plain, *others[:i]])
    assert torch.equal(longspan.attention(*parts, mask, alibi_slopes=SLOPES), others[2])
    assert torch.equal(longspan.attention(*parts, mask, softcap=0.0), plain)
    slopes *= 2  # a tensor that was read before
    assert torch.equal(longspan.attention(*parts, mask, alibi_slopes=slopes),
                       longspan.attention(*parts, mask, alibi_slopes=[2 * slope for slope in SLOPES]))


def test_finite_differences():
    mask = Mask.documents([5, 7])
    parts = inputs(12, 12, heads=(2, 1), head_dim=8)

    def loss(q, k, v):
        o, lse = longspan.attention(q, k, v, mask, return_lse=True)
        return (o.double() ** 2).sum() + lse.double().sin().sum()

    for part, gradient in zip(parts, torch.autograd.grad(loss(*parts), parts)):
        direction = torch.randn(part.shape, generator=torch.Generator().manual_seed(5))
        step = 1e-3
        with torch.no_grad():
            moved = [loss(*(x + sign * step * direction if x is part else x for x in parts)) for sign in (1, -1)]
        slope = float(moved[0] - moved[1]) / (2 * step)
        assert slope == pytest.approx(float((gradient * direction).sum()), rel=1e-2, abs=1e-3)


def test_only_lse_or_only_one_input():
    mask = Mask.causal(40)
    q, k, v = inputs(40, 40)
    o, lse = longspan.attention(q, k, v, mask, return_lse=True)
    gradient, = torch.autograd.grad(lse.sum(), k)
    expected, = torch.autograd.grad(reference(q, k, v, mask.to_dense())[1].sum(), k)
    assert largest(gradient, expected.double()) < 1e-5
    frozen = longspan.attention(q.detach(), k.detach(), v, mask)
    assert torch.autograd.grad(frozen.sum(), v)[0].isfinite().all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rows", [150, 3000])
def test_rows_without_keys_ignore_the_gradient_of_lse(rows, device):
    mask = Mask.from_bands([(20, rows - 60, 30, rows - 50, Mask.UNBOUNDED_BELOW, 10)], rows)
    parts = inputs(rows, rows, dtype=torch.bfloat16, device=device)
    _, lse = longspan.attention(*parts, mask, return_lse=True)
    z_loss = torch.where(lse > float("-inf"), lse**2, 0).sum()  # its gradient is NaN where lse is -inf
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(z_loss, parts[:2]))


def test_inference_mode():
    parts, lengths = inputs(40, 40), [0, 15, 40]
    with torch.inference_mode():
        cumulative = torch.tensor(lengths)
        o = longspan.attention_varlen(*parts, cumulative, causal=True)
        plan = longspan.plan(Mask.causal(40), (4, 2), 64, torch.float32, "cpu")
    assert largest(o, reference(*parts, Mask.from_cu_seqlens(lengths, causal=True).to_dense())[0]) < 1e-5
    torch.autograd.grad(longspan.attention(*parts, plan).sum(), parts)


def test_a_gradient_of_lse_for_one_token():
    parts = inputs(1, 1)
    lse = longspan.attention(*parts, Mask.causal(1), return_lse=True)[1]
    strided = torch.ones(4, 1).as_strided((4, 1), (1, 7))  # which PyTorch calls contiguous
    gradient, = torch.autograd.grad(lse, parts[0], strided)
    assert torch.allclose(gradient, parts[1].detach().repeat_interleave(2, 1) / 8)  # of scale q k


def test_one_tensor_for_all():
    mask = Mask.causal(40)
    x, _, _ = inputs(40, 40, heads=(2, 2))
    gradient, = torch.autograd.grad(longspan.attention(x, x, x, mask).sum(), x)
    expected, = torch.autograd.grad(reference(x, x, x, mask.to_dense())[0].sum(), x)
    assert largest(gradient, expected.double()) < 1e-5


def test_checkpointing_autocast_and_func_grad():
    mask = Mask.documents([30, 50])
    parts = inputs(80, 80)

    def loss(q, k, v):
        return longspan.attention(q, k, v, mask).sin().sum()

    plain = torch.autograd.grad(loss(*parts), parts)
    again = torch.autograd.grad(checkpoint(loss, *parts, use_reentrant=False), parts)
    assert all(torch.equal(a, b) for a, b in zip(plain, again))
    assert torch.equal(torch.func.grad(loss)(*(x.detach() for x in parts)), plain[0])
    with torch.autocast("cpu", torch.bfloat16):
        o = longspan.attention(*parts, mask)
    assert o.dtype == torch.bfloat16
    assert torch.autograd.grad(o.float().sum(), parts[0])[0].dtype == torch.float32


def test_deterministic_follows_torch():
    mask = Mask.causal(40)
    parts = inputs(40, 40)
    torch.use_deterministic_algorithms(True)
    try:
        longspan.attention(*parts, mask)
    finally:
        torch.use_deterministic_algorithms(False)
    longspan.attention(*parts, mask)
    assert sorted(key[-1] for key in mask._plans) == [False, True]


def test_plans_live_as_long_as_needed():
    parts = inputs(60, 60)
    o = longspan.attention(*parts, Mask.causal(60))
    gc.collect()  # the mask and its plan are gone, but for what the backward pass has kept
    expected, _ = reference(*parts, Mask.causal(60).to_dense())
    for ours, theirs in zip(torch.autograd.grad(o.sum(), parts), torch.autograd.grad(expected.sum(), parts)):
        assert largest(ours, theirs.double()) < 1e-4
    plan = longspan.plan(Mask.causal(60), (4, 2), 64, torch.float32, "cpu")
    assert plan.kernel == "cpu-flash" and plan.info["plan_bytes"] > 0
    tensor = plan.tensor.clone()  # the number alone does not keep a plan
    del plan
    gc.collect()
    with pytest.raises(RuntimeError, match="does not exist"):
        torch.ops.longspan.forward(*parts, tensor)


def test_a_thousand_plans_do_not_grow():
    q, k, v = inputs(64, 64, heads=(1, 1), head_dim=16)

    def run(count):
        for i in range(count):
            mask = Mask.documents([1 + i % 60, 63 - i % 60])
            longspan.attention(q, k, v, mask).sum().backward()
            q.grad = k.grad = v.grad = None
        gc.collect()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    # Heaps grow at times, now and then by MiB. A plan has some KiB, so a leak of plans grows by more than 512 KiB every time.
    sizes = [run(1000) for _ in range(8)]
    assert min(after - before for before, after in zip(sizes[3:], sizes[4:])) < 512


@pytest.mark.gpu
def test_a_thousand_plans_do_not_wait_for_the_gpu():
    q, k, v = (x.detach() for x in inputs(4096, 4096, heads=(8, 2), head_dim=128, dtype=torch.bfloat16, device="cuda"))
    longspan.attention(q, k, v, Mask.causal(4096))
    torch.cuda.synchronize()

    def growth():
        free = []
        for i in range(1000):
            longspan.attention(q, k, v, Mask.documents([100 + i, 200, 3796 - i]))
            free.append(torch.cuda.mem_get_info()[0])
        return free[10] - free[-1]

    torch.cuda.set_sync_debug_mode("error")
    try:
        # Other processes may take or free memory of the GPU meanwhile. A leak of plans shows in every thousand.
        assert any(growth() <= 0 for _ in range(10))
    finally:
        torch.cuda.set_sync_debug_mode(0)


@pytest.mark.gpu
def test_graphs_and_streams():
    mask = Mask.documents([1000, 3096])
    parts = inputs(4096, 4096, heads=(8, 2), head_dim=128, dtype=torch.bfloat16, device="cuda")
    with torch.no_grad():
        expected = longspan.attention(*parts, mask)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            got = longspan.attention(*parts, mask)
        got.zero_()
        graph.replay()
        assert torch.equal(got, expected)
        streams = [torch.cuda.Stream() for _ in range(4)]
        torch.cuda.synchronize()
        outputs = []
        for i in range(40):
            with torch.cuda.stream(streams[i % 4]):
                outputs.append(longspan.attention(*parts, mask))
        torch.cuda.synchronize()
    assert all(torch.equal(o, expected) for o in outputs)


@pytest.mark.gpu
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("head_dim", [64, 128])
def test_graphs_follow_a_plan(head_dim, deterministic):
    tokens = 2048
    parts = inputs(tokens, tokens, heads=(8, 2), head_dim=head_dim, dtype=torch.bfloat16, device="cuda")
    dout = torch.randn_like(parts[0])
    masks = [Mask.documents([700, 1348]), Mask.causal(tokens), Mask.full(tokens), Mask.sliding_window(tokens, window=256),
             Mask.uniform_block_sparse(tokens, block=64), Mask.causal_blockwise(tokens), Mask.documents([50] * 40 + [48])]
    plan = longspan.plan(masks[0], (8, 2), head_dim, deterministic=deterministic, graphs=True)

    def both(by):
        o = longspan.attention(*parts, by)
        return o.detach(), *torch.autograd.grad(o, parts, dout)

    exact = [x.detach().double().requires_grad_() for x in parts]

    def by_definition(mask):
        o, _ = reference(*exact, mask.to_dense())
        return o.detach(), *torch.autograd.grad(o, exact, dout.double())

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        both(plan)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        got = both(plan)
    graph.instantiate()
    truth = {mask: by_definition(mask) for mask in masks}
    for mask in masks * 3:
        if mask is not plan.mask:
            assert plan.update_(mask, graphs=[graph]) is plan
        graph.replay()
        assert_alike(got, truth[mask], mask, most=GRADIENT_TOLERANCE)
    graph.instantiate()  # again: of the plan's last mask
    graph.replay()
    assert_alike(got, truth[masks[-1]], "the last mask", most=GRADIENT_TOLERANCE)
    with pytest.raises(ValueError, match="captured no call"):
        longspan.plan(masks[0], (8, 2), head_dim, graphs=True).update_(masks[1], graphs=[graph])
    with pytest.raises(ValueError, match="graphs=True"):
        longspan.plan(masks[0], (8, 2), head_dim).update_(masks[1], graphs=[graph])


@pytest.mark.parametrize("device", DEVICES)
def test_update(device):
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    parts = inputs(96, 96, dtype=dtype, device=device)
    first, second = Mask.causal(96), Mask.documents([30, 66])
    plan = longspan.plan(first, (4, 2), 64, dtype, device)
    o = longspan.attention(*parts, plan)
    plan.update_(second)
    gradients = torch.autograd.grad(o, parts, torch.ones_like(o))  # of the mask of its forward pass
    again = torch.autograd.grad(longspan.attention(*parts, first), parts, torch.ones_like(o))
    assert all(largest(a, b) < 1e-2 for a, b in zip(gradients, again))
    assert torch.equal(longspan.attention(*parts, plan), longspan.attention(*parts, second))
    with pytest.raises(ValueError, match="rows and columns"):
        plan.update_(Mask.causal(95))
    assert plan.mask is second


def test_varlen():
    lengths = torch.tensor([0, 30, 31, 96], dtype=torch.int32)
    parts = inputs(96, 96)
    o = longspan.attention_varlen(*parts, lengths, causal=True)
    expected, _ = reference(*parts, Mask.documents([30, 1, 65]).to_dense())
    assert largest(o, expected) < 1e-5
    lengths[1], lengths[2] = 50, 60  # in place: another mask
    o = longspan.attention_varlen(*parts, lengths, causal=True)
    expected, _ = reference(*parts, Mask.documents([50, 10, 36]).to_dense())
    assert largest(o, expected) < 1e-5
    lengths.numpy()[1] = 40  # a change that the tensor's version does not count
    o = longspan.attention_varlen(*parts, lengths, causal=True)
    expected, _ = reference(*parts, Mask.documents([40, 20, 36]).to_dense())
    assert largest(o, expected) < 1e-5


def test_there_are_no_second_derivatives():
    parts = inputs(40, 40)
    gradient, = torch.autograd.grad(longspan.attention(*parts, Mask.causal(40)).sum(), parts[:1], create_graph=True)
    with pytest.raises(RuntimeError, match="second derivatives"):
        gradient.pow(2).sum().backward()


@pytest.mark.parametrize("call, error, words", [
    (lambda q, k, v: longspan.attention(q[:, 0], k, v, Mask.causal(40)), ValueError, "must be \\[tokens"),
    (lambda q, k, v: longspan.attention(q[0, 0], k, v, Mask.causal(40)), ValueError, "must be \\[tokens"),
    (lambda q, k, v: longspan.attention(q, k, v[0], Mask.causal(40)), ValueError, "must be \\[tokens"),
    (lambda q, k, v: longspan.attention(q[:39], k, v, Mask.causal(40)), ValueError, "q has \\[39, 4, 64\\]"),
    (lambda q, k, v: longspan.attention(q, k[:, :1], v, Mask.causal(40)), ValueError, "v has \\[40, 2, 64\\]"),
    (lambda q, k, v: longspan.attention(q, k.half(), v, Mask.causal(40)), TypeError, "k has torch.float16"),
    (lambda q, k, v: longspan.attention(q.double(), k, v, Mask.causal(40)), TypeError, "float64"),
    (lambda q, k, v: longspan.attention(q, k, v, "causal"), TypeError, "longspan.Mask"),
    (lambda q, k, v: longspan.attention(q[:, :3], k, v, Mask.causal(40)), ValueError, "heads"),
    (lambda q, k, v: longspan.attention(q, k, v, Mask.causal(40), scale=-1.0), ValueError, "scale"),
    (lambda q, k, v: longspan.attention(q, k, v, Mask.causal(40), sinks=torch.zeros(3)), ValueError, "sinks"),
    (lambda q, k, v: longspan.attention(q, k, v, Mask.causal(40), softcap=-1.0), ValueError, "softcap"),
    (lambda q, k, v: longspan.attention(q, k, v, Mask.causal(40), alibi_slopes=[1.0]), ValueError, "4 heads"),
    (lambda q, k, v: longspan.attention(q, k, v, Mask.causal(40), alibi_slopes=[-1.0] * 4), ValueError, "at least 0"),
    (lambda q, k, v: longspan.attention(q, k, v, Mask.causal(40), alibi_slopes=torch.ones(1, 4)), NotImplementedError, "one slope"),
    (lambda q, k, v: longspan.attention(q, k, v, Mask.causal(40), alibi_slopes=torch.ones(4, requires_grad=True)),
     NotImplementedError, "gradient"),
    (lambda q, k, v: longspan.attention(q, k, v[:, :, :32], longspan.plan(Mask.causal(40), (4, 2), 64, torch.float32, "cpu")),
     ValueError, "v has \\[40, 2, 32\\]"),
    (lambda q, k, v: longspan.attention(q, k, v, longspan.plan(Mask.causal(40), (4, 2), 64, torch.float32, "cpu"), softcap=1.0),
     ValueError, "belong to the plan"),
    (lambda q, k, v: longspan.attention_varlen(q, k, v, torch.tensor([0, 10, 40]), torch.tensor([0, 30, 40]), alibi_slopes=[1.0] * 4),
     NotImplementedError, "several sequences"),
    (lambda q, k, v: longspan.attention(q, k, v, Mask.per_head([Mask.causal(40)] * 3)), ValueError, "3"),
    (lambda q, k, v: longspan.plan(Mask.causal(40), (4, 2), 64, torch.float32, "cpu", kernel="fast"), ValueError, "fast"),
    (lambda q, k, v: longspan.plan(Mask.causal(40), (4, 2), 64, torch.float32, "meta"), NotImplementedError, "meta"),
])
def test_mistakes(call, error, words):
    with pytest.raises(error, match=words):
        call(*inputs(40, 40))
