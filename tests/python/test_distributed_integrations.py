"""Context parallelism under SDPA, in torchtitan's interface and in Transformers, over gloo against one rank."""

import collections

import pytest
import torch
import torch.distributed as dist

import longspan
import ranks
from longspan import Mask
from longspan.distributed import ContextParallel, Placement

LENGTHS = [30, 13, 21]
TOKENS = sum(LENGTHS)
POSITIONS = torch.cat([torch.arange(n) for n in LENGTHS])


def summed(gradients):
    for gradient in gradients:
        dist.all_reduce(gradient)
    return gradients


# ---- SDPA ----

def sdpa_model(x, w, positions, causal=False):
    """x [batch, tokens, width] -> a value for each token"""
    x = x + positions[:, None].float().sin()
    q, k, v = (x @ w).unflatten(-1, (8, 8)).transpose(1, 2).split([4, 2, 2], 1)
    o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
    return o.transpose(1, 2).flatten(2).square().sum(-1)


def sdpa_over_ranks():
    from longspan.integrations.context_parallel import context_parallel
    before = torch.nn.functional.scaled_dot_product_attention
    generator = torch.Generator().manual_seed(0)
    x, w = torch.randn(2, TOKENS, 16, generator=generator), torch.randn(16, 64, generator=generator).requires_grad_()
    mask = Mask.documents(LENGTHS)

    def plain(q, k, v, is_causal, enable_gqa):
        o = longspan.attention(*(y.transpose(1, 2) for y in (q, k, v)), Mask.batch([mask] * 2))
        return o.transpose(1, 2)

    torch.nn.functional.scaled_dot_product_attention = plain
    expected = sdpa_model(x, w, POSITIONS)
    torch.nn.functional.scaled_dot_product_attention = before
    gradient, = torch.autograd.grad(expected.mean(), w)

    place = ContextParallel(strategy="ring-p2p", limit_s=60).place(mask, (4, 2), 8, torch.float32)
    mine, positions, rest = x.clone(), POSITIONS.clone(), torch.arange(TOKENS)
    with context_parallel(place, buffers=[mine, positions, rest], buffer_seq_dims=[1, 0, 0], no_restore_buffers=[rest]):
        assert mine.shape[1] == positions.shape[0] == rest.shape[0] == place.count
        assert torch.equal(positions, place.position_ids()) and torch.equal(rest, place.token_ids())
        values = sdpa_model(mine, w, positions, causal=True)
        ours = summed([torch.autograd.grad(values.sum() / expected.numel(), w)[0]])[0]
        with pytest.raises(NotImplementedError, match="attn_mask"):
            torch.nn.functional.scaled_dot_product_attention(mine, mine, mine, attn_mask=torch.ones(1))
    assert torch.nn.functional.scaled_dot_product_attention is before
    assert torch.equal(mine, x) and torch.equal(positions, POSITIONS) and rest.shape[0] == place.count
    torch.testing.assert_close(place.unshard(values, 1), expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(ours, gradient, atol=1e-4, rtol=1e-4)
    full = place.cp.place(Mask.full(TOKENS), (4, 2), 8, torch.float32)
    with context_parallel(full), pytest.raises(ValueError, match="after their rows"):
        sdpa_model(place.shard(x, 1), w, place.position_ids(), causal=True)


def test_sdpa():
    ranks.run(2, sdpa_over_ranks)


def sdpa_buffers():
    from longspan.integrations.context_parallel import context_parallel
    place = ContextParallel(strategy="ring-p2p", limit_s=60).place(Mask.documents(LENGTHS), (4, 2), 8, torch.float32)
    tokens = torch.arange(2 * (TOKENS + 1)).view(2, -1)
    rows, good = torch.arange(2 * TOKENS).view(2, -1), torch.arange(TOKENS)
    for bad, dim, words in ((tokens[:, :-1], 1, "clone"), (tokens[:, 1:], 1, "clone"), (rows[1], 0, "clone"),
                            (rows.clone().T, 0, "clone"), (torch.zeros(TOKENS, requires_grad=True), 0, "gradient"),
                            (torch.zeros(TOKENS, requires_grad=True) * 2, 0, "gradient")):
        with pytest.raises(ValueError, match=rf"buffers\[1\].*{words}"):
            with context_parallel(place, buffers=[good, bad], buffer_seq_dims=[0, dim]):
                pass
    with torch.inference_mode():
        locked = torch.arange(TOKENS)
    with pytest.raises(RuntimeError, match="[Ii]nference"):
        with context_parallel(place, buffers=[good, locked], buffer_seq_dims=[0, 0]):
            pass
    assert torch.equal(tokens, torch.arange(2 * (TOKENS + 1)).view(2, -1)) and torch.equal(good, torch.arange(TOKENS))


def test_sdpa_buffers():
    ranks.run(2, sdpa_buffers)


# ---- torchtitan: packed batches [T], as its main branch has them; test_distributed_torchtitan.py has those of its package ----

VarlenMetadata = collections.namedtuple("VarlenMetadata", "cu_seq_q cu_seq_k max_q max_k cu_seq_q_host", defaults=[None])


class VarlenAttention(torch.nn.Module):
    def __init__(self, window_size=(-1, 0)):
        super().__init__()
        self.window_size = window_size

    def forward(self, q_TNH, k_TNH, v_TNH, *, attention_masks, scale=None, out_transform=None, **kwargs):
        o, lse = longspan.attention_varlen(q_TNH, k_TNH, v_TNH, attention_masks.cu_seq_q, window=self.window_size, scale=scale,
                                           return_lse=True)
        return o if out_transform is None else out_transform(o, lse.transpose(0, 1))


class TitanLayer(torch.nn.Module):
    def __init__(self, window_size):
        super().__init__()
        self.inner_attention = VarlenAttention(window_size)
        self.w = torch.nn.Parameter(torch.randn(16, 64, generator=torch.Generator().manual_seed(1)))

    def forward(self, x, positions, attention_masks):
        q, k, v = ((x + positions[:, None].float().sin()) @ self.w).unflatten(-1, (8, 8)).split([4, 2, 2], 1)
        gate = lambda o, lse: o * torch.sigmoid(lse)[:, :, None]
        return x + self.inner_attention(q, k, v, attention_masks=attention_masks, enable_gqa=True,
                                        out_transform=gate).flatten(1)[:, :16]


def titan_over_ranks(masks):
    from longspan.integrations import torchtitan
    model = torch.nn.ModuleList([TitanLayer((-1, 0)), TitanLayer((7, 0)), TitanLayer((-1, 0))])
    x = torch.randn(TOKENS, 16, generator=torch.Generator().manual_seed(0))
    starts = torch.tensor([0, *LENGTHS]).cumsum(0).to(torch.int32)
    metadata = VarlenMetadata(starts, starts, max(LENGTHS), max(LENGTHS))
    given = {"a": metadata, "b": None} if masks == "dict" else metadata

    def run(x, positions, attention_masks):
        for layer in model:
            x = layer(x, positions, attention_masks["a"] if masks == "dict" else attention_masks)
        return x

    expected = run(x, POSITIONS, given)
    expected_gradients = torch.autograd.grad(expected.square().sum(), model.parameters())
    cp = ContextParallel(limit_s=60)
    assert torchtitan.convert(model, cp) == 3 and torchtitan.convert(model, cp) == 0
    prepare = torchtitan.prepare_input(cp, (4, 2), 8, torch.float32)
    mine, labels, extra = prepare(x, torch.arange(TOKENS), {"positions": POSITIONS, "attention_masks": given}, None, "cpu",
                                  "headtail", ptrr_mask_key=None)
    o = run(mine, **extra)
    place = extra["attention_masks"]["a"] if masks == "dict" else extra["attention_masks"]
    assert torch.equal(labels, place.token_ids())
    torch.testing.assert_close(place.unshard(o), expected, atol=1e-4, rtol=1e-4)
    ours = summed(list(torch.autograd.grad(o.square().sum(), model.parameters())))
    for mine, theirs in zip(ours, expected_gradients):
        torch.testing.assert_close(mine, theirs, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("masks", ["one", "dict"])
def test_torchtitan(masks):
    ranks.run(2, titan_over_ranks, masks)


# ---- Transformers: a training loop on packed batches ----

def train_transformers(kind, settings, strategy):
    import transformers
    from longspan.integrations import transformers as integration
    integration.register()
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=50, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=16, max_position_embeddings=128, attn_implementation="longspan", **settings)
    model = getattr(transformers, f"{kind}ForCausalLM")(config).train()
    first = {name: p.detach().clone() for name, p in model.named_parameters()}
    generator = torch.Generator().manual_seed(1)
    batches = [torch.randint(50, (1, TOKENS), generator=generator) for _ in range(3)]
    labels = [tokens.masked_fill(POSITIONS[None] == 0, -100) for tokens in batches]

    def train(step):
        model.load_state_dict(first, strict=False)
        optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.5), []
        for tokens, label in zip(batches, labels):
            losses.append(step(tokens, label))
            optimizer.step()
            optimizer.zero_grad()
        return losses

    def one_rank(tokens, label):
        loss = model(input_ids=tokens, position_ids=POSITIONS[None], labels=label, use_cache=False).loss
        loss.backward()
        return float(loss.detach())

    cp = ContextParallel(strategy=strategy, limit_s=60)
    place = cp.place(Mask.documents(LENGTHS), (4, 2), 16, torch.float32)

    def two_ranks(tokens, label):
        with integration.context_parallel(place):
            loss = model(**integration.shard_batch(place, tokens, label)).loss
            loss.backward()
        cp.sum_gradients(model.parameters())
        return float(summed([loss.detach().clone()])[0])

    plans, plan = [], Placement.plan
    Placement.plan = lambda *arguments, **options: plans.append(plan(*arguments, **options)) or plans[-1]
    expected, ours = train(one_rank), train(two_ranks)
    Placement.plan = plan
    masks = len(set(getattr(config, "layer_types", None) or ["one"]))
    assert len(plans) == masks, "a plan of each mask serves all steps"
    assert ours == pytest.approx(expected, rel=1e-5) and len(set(expected)) == 3
    with integration.context_parallel(place), pytest.raises(ValueError, match="shard_batch"):
        model(input_ids=place.shard(batches[0], 1), position_ids=place.position_ids()[None], use_cache=False)


@pytest.mark.parametrize("kind, settings, strategy", [("Llama", {}, "balanced"),
                                                      ("Mistral", {"sliding_window": 9}, "ring-p2p"),
                                                      ("Gemma2", {"sliding_window": 9, "query_pre_attn_scalar": 16,
                                                                  "attn_logit_softcapping": 5.0}, "balanced")])
def test_transformers(kind, settings, strategy):
    pytest.importorskip("transformers")
    ranks.run(2, train_transformers, kind, settings, strategy)
