"""Tiny models of Transformers: the same losses and gradients as with eager attention."""

import pytest
import torch

transformers = pytest.importorskip("transformers")

from longspan import Mask  # noqa: E402
from longspan.integrations import transformers as integration  # noqa: E402

integration.register()


def model_of(kind, implementation, **settings):
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=50, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=128, attn_implementation=implementation, **settings)
    return getattr(transformers, f"{kind}ForCausalLM")(config).train()


def loss_and_gradients(model, **batch):
    loss = model(**batch).loss
    loss.backward()
    return loss, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def same(ours, theirs):
    torch.testing.assert_close(ours[0], theirs[0], atol=1e-5, rtol=1e-5)
    assert ours[1].keys() == theirs[1].keys()
    for name, gradient in ours[1].items():
        torch.testing.assert_close(gradient, theirs[1][name], atol=2e-5, rtol=2e-4, msg=lambda m: f"{name}: {m}")


TOKENS = torch.randint(50, (1, 60), generator=torch.Generator().manual_seed(1))
LENGTHS = [20, 33, 7]


def labels_of(tokens, lengths):
    """The first token of each document has nothing to follow from."""
    labels = tokens.clone()
    begin = 0
    for length in lengths:
        labels[:, begin] = -100
        begin += length
    return labels


@pytest.mark.parametrize("kind, settings", [("Llama", {}), ("Mistral", {"sliding_window": 9}), ("Qwen3", {})])
def test_packed_documents_are_those_documents(kind, settings):
    positions = torch.cat([torch.arange(n) for n in LENGTHS])[None]
    packed = loss_and_gradients(model_of(kind, "longspan", **settings), input_ids=TOKENS, position_ids=positions,
                                labels=labels_of(TOKENS, LENGTHS), use_cache=False)
    separate = model_of(kind, "eager", **settings)
    total, counted = 0, 0
    for document in TOKENS.split(LENGTHS, 1):
        count = document.shape[1] - 1
        total, counted = total + separate(input_ids=document, labels=document, use_cache=False).loss * count, counted + count
    loss = total / counted
    loss.backward()
    same(packed, (loss, {name: p.grad for name, p in separate.named_parameters() if p.grad is not None}))


def test_soft_capping():
    batch = {"input_ids": TOKENS, "labels": TOKENS, "use_cache": False}
    settings = {"attn_logit_softcapping": 0.02, "query_pre_attn_scalar": 16, "sliding_window": 9}  # far below the scores
    capped = loss_and_gradients(model_of("Gemma2", "longspan", **settings), **batch)
    same(capped, loss_and_gradients(model_of("Gemma2", "eager", **settings), **batch))
    plain = loss_and_gradients(model_of("Gemma2", "longspan", **{**settings, "attn_logit_softcapping": None}), **batch)
    assert not torch.equal(capped[0], plain[0])


def test_padding():
    tokens = torch.randint(50, (2, 30), generator=torch.Generator().manual_seed(2))
    padding = torch.ones_like(tokens)
    padding[1, :11] = 0
    labels = tokens.clone()
    labels[1, :12] = -100  # what a row of padding says does not count
    batch = {"input_ids": tokens, "attention_mask": padding, "labels": labels, "use_cache": False}
    same(loss_and_gradients(model_of("Llama", "longspan"), **batch), loss_and_gradients(model_of("Llama", "eager"), **batch))


def test_generation_with_a_cache():
    tokens = TOKENS[:, :12]
    ours, theirs = (model_of("Llama", name).eval().generate(tokens, max_new_tokens=6, do_sample=False)
                    for name in ("longspan", "eager"))
    assert torch.equal(ours, theirs)


def test_masks():
    def bands(**options):
        return integration.make_mask(1, 8, 8, **options).bands()

    assert bands() == Mask.causal(8).bands()
    assert integration.make_mask(1, 2, 8, q_offset=6).to_dense().tolist() == [[True] * 7 + [False], [True] * 8]
    window = integration.make_mask(1, 3000, 3000, mask_function=lambda b, h, q, k: (k <= q) & (k > q - 100))
    assert window.area == Mask.window(3000, 99, 0).area and len(window.bands()) < 10


def test_what_is_lacking_is_refused():
    for settings, words in (({"attention_dropout": 0.1}, "dropout"),):
        with pytest.raises(NotImplementedError, match=words):
            model_of("Llama", "longspan", **settings)(input_ids=TOKENS, labels=TOKENS)
    with pytest.raises(NotImplementedError, match="AttentionMaskInterface"):
        x = torch.randn(1, 2, 5, 16)
        integration.attention_forward(None, x, x, x, torch.zeros(1, 1, 5, 5))
