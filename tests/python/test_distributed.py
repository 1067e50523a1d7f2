"""Context parallelism over gloo, on the CPU: every strategy and mask against one rank, placements, and training."""

import gc
import weakref

import pytest
import torch
import torch.distributed as dist
from torch.utils.checkpoint import checkpoint

import longspan
import ranks
from conftest import gradients, inputs, reference
from longspan import Mask
from longspan.distributed import ContextParallel

STRATEGIES = ["ulysses", "ring-p2p", "ring-allgather", "usp", "loongtrain", "balanced"]
TOKENS = 96
OPTIONS = {  # that suit few tokens
    "sliding_window": {"window": 20}, "sliding_window_causal": {"window": 20}, "global_sliding_window": {"window": 10},
    "full_document": {"lengths": "uniform:8:40"}, "causal_document": {"lengths": "uniform:8:40"},
    "share_question": {"lengths": "uniform:8:40"}, "causal_blockwise": {"lengths": "uniform:8:40"},
    "prefix_lm_document": {"lengths": "uniform:8:40"}, "block_causal_document": {"block": 16},
    "uniform_block_sparse": {"block": 16, "density": 0.5, "kv_heads": 2},
    "variable_block_sparse": {"block": 16, "block_min": 4, "kv_heads": 2},
}
MASKS = {name: lambda name=name: Mask.pattern(name, TOKENS, **OPTIONS.get(name, {})) for name in longspan._core.patterns()}
MASKS |= {
    "documents": lambda: Mask.documents([40, 1, 30, 25]),
    "tree": lambda: Mask.tree([-1, 0, 0, 2, -1], [20, 20, 16, 20, 20]),
    "dense": lambda: Mask.from_dense(torch.rand(TOKENS, TOKENS, generator=torch.Generator().manual_seed(3)) < 0.4),
    "rows without keys": lambda: Mask.from_bands([(20, 60, 30, 70, Mask.UNBOUNDED_BELOW, 10)], TOKENS),
}
FLOOR = {torch.float32: 1e-6, torch.bfloat16: 4e-3}


def cp_of(strategy="balanced", group=None, **options):
    return ContextParallel(group, strategy, limit_s=60, **options)


def both_passes(cp, mask, parts):
    """(o, lse, dq, dk, dv) of the whole sequence, and the same by one rank, for the loss of conftest.gradients."""
    one_o, one_lse = longspan.attention(*parts, mask, return_lse=True)
    one = (one_o, one_lse, *gradients(one_o, one_lse, parts))
    place = cp.place(mask, (parts[0].shape[1], parts[1].shape[1]), parts[0].shape[2], parts[0].dtype)
    o, lse = cp.attention(*map(place.shard, parts), place, return_lse=True)
    o, lse = place.unshard(o), place.unshard(lse, 1)
    grads = [gradient.float() for gradient in gradients(o, lse, parts)]
    for gradient in grads:
        dist.all_reduce(gradient, group=cp.group)
    return (o, lse, *grads), one


def largest(a, b):
    difference = (a.double() - b.double()).abs()
    return float(difference[torch.isfinite(b)].max()) if difference.numel() else 0.0


def compare(strategy, name, dtype):
    mask = MASKS[name]()
    parts = inputs(*mask.shape, heads=(8, 4) if mask.heads == 1 else (4, 2), head_dim=16, dtype=dtype)
    ours, one = both_passes(cp_of(strategy), mask, parts)
    truth = reference(*parts, mask.to_dense())
    truth = (*truth, *gradients(*truth, parts))
    for mine, theirs, true in zip(ours, one, truth):
        assert torch.equal(torch.isfinite(mine), torch.isfinite(true))
        size = float(true.detach()[torch.isfinite(true)].abs().max())
        assert largest(mine, true) <= 2 * largest(theirs, true) + FLOOR[dtype] * size, (strategy, name, dtype)


def compare_all(strategy, names, dtype):
    for name in names:
        try:
            compare(strategy, name, dtype)
        except NotImplementedError as refused:  # as all ranks do, without communication
            assert strategy == "ulysses" and "heads" in str(refused), refused


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("size", [2, 4])
def test_every_mask(size, strategy):
    ranks.run(size, compare_all, strategy, list(MASKS), torch.float32)
    ranks.run(size, compare_all, strategy, ["documents", "causal"], torch.bfloat16)


# ---- sizes that do not divide ----

def few_tokens(strategy, tokens, heads, lengths):
    mask = Mask.documents(lengths)
    ours, one = both_passes(cp_of(strategy), mask, inputs(tokens, tokens, heads=heads, head_dim=8))
    for mine, theirs in zip(ours, one):
        torch.testing.assert_close(mine.float(), theirs.float(), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_seven_tokens_and_ranks_without_tokens(strategy):
    ranks.run(2, few_tokens, strategy, 7, (4, 2), [3, 4])
    ranks.run(4, few_tokens, strategy, 7, (4, 2), [3, 4])
    ranks.run(4, few_tokens, strategy, 3, (4, 2), [1, 2])


def has_a_rank_without_tokens():
    place = cp_of("ring-p2p").place(Mask.causal(3), (4, 2), 8)
    assert sum(place.counts) == 3 and 0 in place.counts
    x = torch.randn(3, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    values = place.shard(x).square().sum(1)
    mean = place.loss_mean(values)
    torch.testing.assert_close(mean, x.square().sum(1).mean())
    mean.backward()
    dist.all_reduce(x.grad)
    torch.testing.assert_close(x.grad, 2 * x.detach() / 3)
    return place.count


def test_a_rank_without_tokens_takes_part():
    assert sum(ranks.run(4, has_a_rank_without_tokens)) == 3


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("heads", [(3, 3), (6, 2), (5, 1)])
def test_heads_that_do_not_divide(strategy, heads):
    try:
        ranks.run(4, few_tokens, strategy, 50, heads, [20, 30])
    except AssertionError as failure:
        assert strategy == "ulysses" and "NotImplementedError: ulysses cannot do this" in str(failure), failure


# ---- errors do not grow with the number of ranks ----

def errors_of(strategy, dtype):
    mask = Mask.documents([100, 28, 128])
    parts = inputs(256, 256, heads=(8, 8), head_dim=32, dtype=dtype)
    ours, one = both_passes(cp_of(strategy), mask, parts)
    truth = reference(*parts, mask.to_dense())
    truth = (*truth, *gradients(*truth, [part for part in parts]))
    rms = lambda some: [float((x.detach().double() - t.detach().double()).square().mean().sqrt()) for x, t in zip(some, truth)]
    return rms(ours), rms(one)


def all_errors(dtype):
    return {strategy: errors_of(strategy, dtype) for strategy in STRATEGIES}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_the_error_does_not_grow_with_the_ranks(dtype):
    for strategy, (ours, one) in ranks.run(8, all_errors, dtype)[0].items():
        assert all(mine <= 1.5 * theirs for mine, theirs in zip(ours, one)), (strategy, ours, one)


# ---- placements ----

def shards_of_anything():
    cp = cp_of("ring-p2p")
    mask = Mask.documents([20, 1, 12, 17])
    place = cp.place(mask, (4, 2), 8)
    assert cp.place(mask, (4, 2), 8) is place
    ids = place.token_ids()
    assert place.count == len(ids) and sum(place.counts) == 50
    whole = torch.cat([torch.arange(n) for n in (20, 1, 12, 17)])
    assert torch.equal(place.position_ids(), whole[ids])
    given = cp.place(mask, (4, 2), 8, documents=[50])
    assert torch.equal(given.position_ids(), given.token_ids())
    generator = torch.Generator().manual_seed(0)
    for shape, dim, dtype in [((50,), 0, torch.int64), ((50, 3, 2), 0, torch.bfloat16), ((2, 50, 5), 1, torch.float32),
                              ((4, 50), -1, torch.bool), ((50, 0), 0, torch.float32), ((50, 1), 0, torch.float64)]:
        x = torch.randint(0, 2, shape, generator=generator).to(dtype)
        part = place.shard(x, dim)
        assert torch.equal(part, x.index_select(dim, ids))
        assert torch.equal(place.unshard(part, dim), x)
        for shifts in (-1, 1, 7, 0, -51):
            assert torch.equal(place.roll(part, shifts, dim), place.shard(torch.roll(x, shifts, dim), dim))
    for call in (lambda: place.shard(torch.zeros(49)), lambda: place.unshard(torch.zeros(50, 2), 1),
                 lambda: place.roll(torch.zeros(2), 1, 3)):
        with pytest.raises(ValueError, match="tokens along dim"):
            call()


def gradients_of_placements():
    place = cp_of("balanced").place(Mask.causal(30), (4, 2), 8)
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(30, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    x.requires_grad_()
    valid = torch.arange(30) % 3 > 0

    def sum_over_ranks(loss):
        gradient, = torch.autograd.grad(loss, x)
        dist.all_reduce(gradient)
        return gradient

    expected = torch.autograd.grad((x.sin() * w).sum(), x)[0]
    torch.testing.assert_close(sum_over_ranks((place.unshard(place.shard(x).sin()) * w).sum()), expected)
    mine = torch.arange(30) % dist.get_world_size() == dist.get_rank()  # each rank looks at other rows of the whole
    apart = (place.unshard(place.shard(x).sin(), sum_gradients=True) * w)[mine].sum()
    torch.testing.assert_close(sum_over_ranks(apart), expected)
    rolled = (place.roll(place.shard(x), -1).sin() * place.shard(w)).sum()
    torch.testing.assert_close(sum_over_ranks(rolled), torch.autograd.grad((x.roll(-1, 0).sin() * w).sum(), x)[0])
    losses = x.square().sum(1)
    whole = losses[valid].mean()
    expected, = torch.autograd.grad(whole, x, retain_graph=True)
    mean = place.loss_mean(place.shard(losses), place.shard(valid))
    torch.testing.assert_close(mean.double(), whole.detach(), atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(sum_over_ranks(mean), expected, atol=1e-6, rtol=1e-5)
    poisoned = torch.where(place.shard(valid), place.shard(losses.detach()), float("nan"))
    torch.testing.assert_close(place.loss_mean(poisoned, place.shard(valid)), mean.detach())
    assert place.loss_mean(poisoned, torch.zeros_like(place.shard(valid))) == 0


def test_placements():
    for size in (2, 4):
        ranks.run(size, shards_of_anything)
        ranks.run(size, gradients_of_placements)


def wrong_losses():
    place = cp_of("ring-p2p").place(Mask.causal(30), (4, 2), 8)
    values = torch.ones(place.count)
    assert place.loss_mean(values) == place.loss_mean(values[None], values[None] > 0) == 1
    for wrong in (values.mean(), values[1:], values[:, None]):
        with pytest.raises(ValueError, match="values: shape"):
            place.loss_mean(wrong)
    with pytest.raises(ValueError, match="valid: shape"):
        place.loss_mean(values[None], values > 0)


def test_a_loss_is_one_of_each_token():
    ranks.run(2, wrong_losses)


def gradients_that_ranks_lack():
    """A rank has no gradient of experts that got none of its tokens."""
    cp = cp_of("ring-p2p")
    nobody, first, both, second = (torch.nn.Parameter(torch.zeros(2, 3)) for _ in range(4))
    half, frozen = torch.nn.Parameter(torch.zeros(5, dtype=torch.bfloat16)), torch.nn.Parameter(torch.zeros(2), False)
    (second if cp.rank else first).grad = torch.full((2, 3), 1.0 + cp.rank)
    both.grad = torch.full((2, 3), 2.0 ** -20 + cp.rank)
    half.grad = torch.ones_like(half) if cp.rank else None
    cp.sum_gradients(iter([nobody, first, frozen, half, both, second]))
    assert nobody.grad is None and frozen.grad is None
    for p, expected in ((first, 1), (both, 1 + 2 ** -19), (second, 2), (half, 1)):
        assert p.grad.dtype == p.dtype and torch.equal(p.grad, torch.full_like(p, expected))


def test_gradients_that_ranks_lack():
    ranks.run(2, gradients_that_ranks_lack)


# ---- a model: rotary positions, layers of several masks on one placement, checkpointing, compile, autocast ----

class Layer(torch.nn.Module):
    def __init__(self, width=32, heads=4, heads_kv=2):
        super().__init__()
        self.heads, self.heads_kv, self.head_dim = heads, heads_kv, width // heads
        self.qkv = torch.nn.Linear(width, (heads + 2 * heads_kv) * self.head_dim, bias=False)
        self.out = torch.nn.Linear(width, width, bias=False)
        self.sinks = torch.nn.Parameter(torch.randn(heads))

    def forward(self, x, positions, attend):
        qkv = self.qkv(torch.nn.functional.rms_norm(x, x.shape[-1:])).unflatten(-1, (-1, self.head_dim))
        q, k, v = qkv.split([self.heads, self.heads_kv, self.heads_kv], 1)
        half = self.head_dim // 2
        angle = positions[:, None, None] * 100.0 ** (-torch.arange(half, device=x.device) / half)
        turn = lambda y: torch.view_as_real(torch.view_as_complex(y.float().unflatten(-1, (-1, 2)).contiguous()) *
                                            torch.polar(torch.ones_like(angle), angle)).flatten(-2).to(y.dtype)
        return x + self.out(attend(turn(q), turn(k), v, self.sinks).flatten(1))


def model_loss(layers, x, positions, attends, mean, how):
    """how: "plain", "checkpoint", or the name of a backend of torch.compile."""
    for layer, attend in zip(layers, attends):
        if how == "checkpoint":
            x = checkpoint(layer, x, positions, attend, use_reentrant=False)
        elif how == "plain":
            x = layer(x, positions, attend)
        else:
            x = torch.compile(layer, backend=how, fullgraph=True)(x, positions, attend)
    return mean(x.float().square().sum(1))


def train_step(strategy, how, device="cpu", dtype=torch.float32, width=32, tolerance=1e-4):
    torch.manual_seed(0)
    lengths = [33, 20, 11]
    layers = torch.nn.ModuleList(Layer(width) for _ in range(4)).to(device, dtype)
    x = torch.randn(64, width).to(device, dtype)
    masks = [Mask.documents(lengths), Mask.documents(lengths, (7, 0))] * 2
    plain = lambda mask: lambda q, k, v, sinks: longspan.attention(q, k, v, mask, sinks=sinks)
    positions = torch.cat([torch.arange(n) for n in lengths]).to(device)
    one = model_loss(layers, x, positions, [plain(mask) for mask in masks], torch.mean, "plain")
    one.backward()
    expected = [p.grad.clone() for p in layers.parameters()]
    layers.zero_grad()

    cp = cp_of(strategy)
    full = cp.place(masks[0], (4, 2), width // 4, dtype)
    places = [full, full.with_mask(masks[1])] * 2
    assert places[1] is full.with_mask(masks[1])

    def sharded(place):
        found = place if how in ("plain", "checkpoint") else place.plan(dtype, device, lse_gradient=True)
        return lambda q, k, v, sinks: cp.attention(q, k, v, found, sinks=sinks)

    loss = model_loss(layers, full.shard(x), full.position_ids(device), [sharded(place) for place in places], full.loss_mean, how)
    loss.backward()
    cp.sum_gradients(layers.parameters())
    torch.testing.assert_close(loss, one.detach(), atol=tolerance / 100, rtol=tolerance / 10)
    for p, gradient in zip(layers.parameters(), expected):
        torch.testing.assert_close(p.grad, gradient, atol=tolerance / 10, rtol=tolerance)
    if how in ("plain", "checkpoint"):
        assert all(len(place._plans) == 1 for place in places), "layers share plans"


@pytest.mark.parametrize("how", ["plain", "checkpoint"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_layers_share_a_placement(strategy, how):
    ranks.run(2, train_step, strategy, how)


def test_compile():
    ranks.run(2, train_step, "balanced", "aot_eager")


def compiles_once():
    from torch._dynamo.testing import CompileCounter
    cp, counter = cp_of("ring-p2p"), CompileCounter()

    def layer(q, k, v, plan):
        return cp.attention(q * 2, k, v, plan).sin()

    compiled = torch.compile(layer, backend=counter, fullgraph=True)
    for i in range(7):
        mask = Mask.documents([10 + 5 * i, 3, 67 - 5 * i])
        place = cp.place(mask, (4, 2), 8)
        plan = place.plan(torch.float32, "cpu")
        parts = [place.shard(x) for x in inputs(80, 80, head_dim=8, seed=i)]
        assert torch.equal(compiled(*parts, plan), layer(*parts, plan))
    place = cp.place(Mask.causal(80), (4, 2), 8)
    with pytest.raises(Exception, match="Placement.plan"):
        torch.compile(lambda q, k, v: cp.attention(q, k, v, place), backend="eager", fullgraph=True)(*parts)
    return counter.frame_count


def takes_features(strategy):
    cp, mask = cp_of(strategy), Mask.documents([30, 7, 43])
    place = cp.place(mask, (4, 2), 8, torch.float32)
    whole = inputs(80, 80, head_dim=8, head_dim_v=24)
    expected, lse = longspan.attention(*whole, mask, softcap=0.5, return_lse=True)
    weights = torch.randn(expected.shape, generator=torch.Generator().manual_seed(5))
    truth = torch.autograd.grad((expected * weights).sum() + lse.sum(), whole)
    parts = [place.shard(x).detach().requires_grad_() for x in whole]
    for found in (place, place.plan(torch.float32, "cpu", head_dim_v=24, softcap=0.5, lse_gradient=True)):
        options = {"softcap": 0.5} if found is place else {}
        o, lse = cp.attention(*parts, found, return_lse=True, **options)
        torch.testing.assert_close(o, place.shard(expected), atol=1e-5, rtol=1e-5)
        ours = torch.autograd.grad((o * place.shard(weights)).sum() + lse.sum(), parts)
        for a, b in zip(ours, truth):
            torch.testing.assert_close(a, place.shard(b), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_features(strategy):
    ranks.run(2, takes_features, strategy)


def test_other_plans_do_not_compile_again():
    assert all(count <= 3 for count in ranks.run(2, compiles_once))


def operators_pass_opcheck():
    place = cp_of("ring-p2p").place(Mask.causal(20), (4, 2), 8)
    plan = place.plan(torch.float32, "cpu", lse_gradient=True)
    parts = [place.shard(x.detach()).contiguous() for x in inputs(20, 20, head_dim=8)]
    utils = ("test_schema", "test_faketensor", "test_aot_dispatch_static")
    for forward in (torch.ops.longspan.parallel_attention, torch.ops.longspan.parallel_forward):
        torch.library.opcheck(forward.default, (*parts, plan.tensor, plan.kept_bytes), test_utils=utils)
    results = torch.ops.longspan.parallel_forward(*parts, plan.tensor, plan.kept_bytes)
    torch.library.opcheck(torch.ops.longspan.parallel_backward.default,
                          (torch.randn_like(results[0]), torch.randn_like(results[1]), *parts, *results, plan.tensor),
                          test_utils=utils)


def test_opcheck():
    ranks.run(2, operators_pass_opcheck)


def autocast_and_inference():
    mask = Mask.documents([30, 34])
    cp = cp_of("balanced")
    place = cp.place(mask, (4, 2), 16, torch.float32)
    parts = inputs(64, 64, head_dim=16)
    mine = [place.shard(x) for x in parts]
    with torch.autocast("cpu", torch.bfloat16):
        o = cp.attention(*mine, place)
    assert o.dtype == torch.bfloat16
    with torch.inference_mode():
        whole = place.unshard(cp.attention(*(x[None] for x in mine), place)[0])
    torch.testing.assert_close(whole, longspan.attention(*parts, mask).detach(), atol=1e-5, rtol=1e-4)
    assert torch.autograd.grad(cp.attention(*mine, place, deterministic=True).sum(), parts)[0].isfinite().all()


def test_autocast_and_inference():
    ranks.run(2, autocast_and_inference)


def plans_end_with_their_masks():
    cp = cp_of("ring-p2p")
    gc.disable()  # nothing waits for the collector of cycles
    try:
        mask = Mask.causal(40)
        place = cp.place(mask, (4, 2), 8)
        parts = inputs(40, 40, head_dim=8)
        o = cp.attention(*map(place.shard, parts), place)
        window = place.with_mask(Mask.documents([10, 30]))
        cp.attention(*map(place.shard, parts), window.with_window(3, 0))
        number = next(iter(place._plans.values())).tensor.item()
        ended = [weakref.ref(x) for x in (mask, place, window)]
        del mask, place, window
        assert all(reference() is None for reference in ended)
        torch.autograd.grad(o.sum(), parts[0])  # it has kept its plan
        del o
        with pytest.raises(RuntimeError, match="does not exist"):
            torch.ops.longspan.parallel_forward(*parts, torch.tensor([number]), 0)
    finally:
        gc.enable()


def test_plans_end_with_their_masks():
    ranks.run(2, plans_end_with_their_masks)


# ---- groups ----

def many_groups():
    from torch.distributed.device_mesh import init_device_mesh
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "cp"))
    mask = Mask.documents([25 + 10 * mesh["dp"].get_local_rank(), 39])  # each replica has its own
    inner, outer = ContextParallel(mesh["cp"], limit_s=60), ContextParallel(mesh["dp"].get_group(), "ring-p2p", limit_s=60)
    every = ContextParallel(strategy="ulysses", limit_s=60)
    assert (inner.size, outer.size, every.size) == (2, 2, 4)
    for cp, own in ((inner, mask), (outer, Mask.causal(40)), (every, Mask.full(33)), (inner, Mask.causal(9))):
        parts = inputs(*own.shape, head_dim=8)
        ours, one = both_passes(cp, own, parts)
        for mine, theirs in zip(ours, one):
            torch.testing.assert_close(mine.float(), theirs.float(), atol=1e-5, rtol=1e-4)
    with pytest.raises(ValueError, match="name one"):
        ContextParallel(mesh)


def test_groups_of_a_mesh():
    ranks.run(4, many_groups)


# ---- what is refused ----

def refusals():
    cp = cp_of("ring-p2p")
    mask = Mask.causal(20)
    place = cp.place(mask, (4, 2), 8, torch.float32)
    q, k, v = (place.shard(x.detach()) for x in inputs(20, 20, head_dim=8))
    cp.attention(q, k, v, place)
    for error, words, call in [
        (TypeError, "must be a Placement", lambda: cp.attention(q, k, v, mask)),
        (ValueError, "q has", lambda: cp.attention(q[1:], k, v, place)),
        (ValueError, "k has", lambda: cp.attention(q, k[:, :1], v, place)),
        (ValueError, "another ContextParallel", lambda: cp_of("ring-p2p").attention(q, k, v, place)),
        (ValueError, "rows and columns", lambda: cp.place(Mask.from_bands([], 3, 4), (4, 2), 8)),
        (ValueError, "is unknown", lambda: cp_of("rign-p2p").place(Mask.causal(21), (4, 2), 8)),
        (ValueError, "sharding", lambda: cp_of("ring-p2p", shardin="zigzag").place(Mask.causal(22), (4, 2), 8)),
        (ValueError, "nodes", lambda: cp_of("ring-p2p", nodes=3).place(Mask.causal(23), (4, 2), 8)),
        (ValueError, "documents of 19", lambda: cp.place(Mask.causal(24), (4, 2), 8, documents=[19])),
        (ValueError, "has 30 tokens", lambda: place.with_mask(Mask.causal(30))),
        (ValueError, "limit_s", lambda: ContextParallel(limit_s=0)),
        (NotImplementedError, "heads", lambda: ContextParallel(strategy="ulysses").place(Mask.causal(25), (1, 1), 8)),
        (RuntimeError, "lse_gradient", lambda: torch.autograd.grad(cp.attention(
            q.clone().requires_grad_(), k, v, place.plan(torch.float32, "cpu"), return_lse=True)[1].sum(), q)),
    ]:
        if words == "lse_gradient":
            part = q.clone().requires_grad_()
            lse = cp.attention(part, k, v, place.plan(torch.float32, "cpu"), return_lse=True)[1]
            call = lambda: torch.autograd.grad(lse.sum(), part)
        with pytest.raises(error, match=words):
            call()
    cp.attention(q, k, v, place)  # the group is well


def test_refusals():
    ranks.run(2, refusals)


def other_masks():
    cp = cp_of("ring-p2p")
    mask = Mask.documents([10 + dist.get_rank(), 20 - dist.get_rank()])
    place = cp.place(mask, (4, 2), 8, torch.float32)
    parts = [place.shard(x.detach()) for x in inputs(30, 30, head_dim=8)]
    with pytest.raises(ValueError, match="ranks 1 have another mask"):
        cp.attention(*parts, place)
    return True


def test_ranks_that_disagree():
    assert all(ranks.run(2, other_masks))
