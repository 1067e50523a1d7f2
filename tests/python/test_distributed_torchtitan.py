"""The modules of torchtitan's package over two gloo ranks: a decoder has the outputs and gradients of one rank."""

import dataclasses

import pytest
import torch
import torch.distributed as dist

import ranks
from longspan.distributed import ContextParallel

pytest.importorskip("torchtitan.models.common.decoder", reason="the package torchtitan is absent")

BATCH, TOKENS, WIDTH, VOCABULARY, WINDOW = 2, 64, 64, 40, 9
POSITIONS = torch.stack([torch.cat([torch.arange(n) for n in lengths]) for lengths in ((30, 13, 21), (50, 1, 13))])


def decoder_of(inner_attention):
    """Two layers, whose weights do not depend on inner_attention."""
    from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm
    from torchtitan.models.common.config_utils import make_ffn_config, make_gqa_config
    from torchtitan.models.common.decoder import Decoder, TransformerBlock

    class Block(TransformerBlock):
        @dataclasses.dataclass(kw_only=True, slots=True)
        class Config(TransformerBlock.Config):
            pass

        def __init__(self, config):
            super().__init__()
            self.attention, self.feed_forward = config.attention.build(), config.feed_forward.build()
            self.attention_norm, self.ffn_norm = config.attention_norm.build(), config.ffn_norm.build()

        def forward(self, x, attention_masks, positions=None):
            x = x + self.attention(self.attention_norm(x), attention_masks, positions)
            return x + self.feed_forward(self.ffn_norm(x))

    normal = {"weight": lambda weight: torch.nn.init.normal_(weight, std=0.1)}
    norm = RMSNorm.Config(normalized_shape=WIDTH, param_init={"weight": torch.nn.init.ones_})
    block = Block.Config(
        attention_norm=norm, ffn_norm=norm,
        attention=make_gqa_config(dim=WIDTH, n_heads=4, n_kv_heads=2, wqkv_param_init=normal, wo_param_init=normal,
                                  inner_attention=inner_attention, fuse_qkv=True,
                                  rope=ComplexRoPE.Config(dim=WIDTH // 4, max_seq_len=TOKENS)),
        feed_forward=make_ffn_config(dim=WIDTH, hidden_dim=96, w1_param_init=normal, w2w3_param_init=normal))
    model = Decoder.Config(
        dim=WIDTH, vocab_size=VOCABULARY, norm=norm, layers=[block, block],
        tok_embeddings=Embedding.Config(num_embeddings=VOCABULARY, embedding_dim=WIDTH, param_init=normal),
        lm_head=Linear.Config(in_features=WIDTH, out_features=VOCABULARY, param_init=normal)).build()
    torch.manual_seed(0)
    model.init_states()
    return model


def masks_of(kind):
    """(attention_masks that torchtitan makes for such modules, the same as a BlockMask)"""
    from torch.nn.attention.flex_attention import and_masks, create_block_mask
    from torchtitan.models.common import attention
    mods = [attention.get_causal_mask_mod(), attention.get_efficient_causal_mask_mod_for_packed_document(POSITIONS)]
    if kind == "window":
        mods.append(attention.get_sliding_window_mask_mod(WINDOW + 1))
    block_mask = create_block_mask(and_masks(*mods), BATCH, None, TOKENS, TOKENS, device="cpu", BLOCK_SIZE=16)
    return (attention.create_varlen_metadata_for_document(POSITIONS), block_mask) if kind != "flex" else (block_mask, block_mask)


def dense_flex_attention(q, k, v, *, block_mask, scale, enable_gqa, **_):
    """On the CPU, FlexAttention has no backward pass."""
    from torch.nn.attention.flex_attention import create_mask
    visible = create_mask(block_mask.mask_mod, BATCH, 1, TOKENS, TOKENS, device="cpu")
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, visible, scale=scale, enable_gqa=enable_gqa), None


def train(kind):
    from torchtitan.models.common.attention import FlexAttention, ScaledDotProductAttention, VarlenAttention
    from longspan.integrations import torchtitan as integration
    FlexAttention._compiled_flex_attn = staticmethod(dense_flex_attention)
    ids = torch.randint(VOCABULARY, (BATCH, TOKENS), generator=torch.Generator().manual_seed(1))
    inner = {"sdpa": ScaledDotProductAttention.Config(), "flex": FlexAttention.Config(block_size=16),
             "varlen": VarlenAttention.Config(), "window": VarlenAttention.Config(window_size=(WINDOW, 0))}[kind]
    given, block_mask = (None, None) if kind == "sdpa" else masks_of(kind)
    reference = decoder_of(inner if kind == "sdpa" else FlexAttention.Config(block_size=16))
    expected = reference(ids, positions=POSITIONS, attention_masks=block_mask)
    expected_gradients = torch.autograd.grad(expected.square().mean(), reference.parameters())

    model, cp = decoder_of(inner), ContextParallel(limit_s=60)
    assert integration.convert([layer.attention.inner_attention for layer in model.layers.values()], cp) == 2
    assert integration.convert(model, cp) == 0
    prepare = integration.prepare_input(cp, (4, 2), WIDTH // 4, torch.float32)
    mine, labels, extra = prepare(ids, ids, {"positions": POSITIONS, "attention_masks": given}, None, torch.device("cpu"), "headtail")
    place = extra["attention_masks"]
    assert torch.equal(place.unshard(labels, 1).view(BATCH, TOKENS), ids) and mine.shape == (1, place.count)
    logits = model(mine, **extra)
    torch.testing.assert_close(place.unshard(logits, 1).view(expected.shape), expected, atol=1e-4, rtol=1e-4)
    loss = logits.square().sum() / expected.numel()
    for gradient, theirs in zip(torch.autograd.grad(loss, model.parameters()), expected_gradients):
        dist.all_reduce(gradient)
        torch.testing.assert_close(gradient, theirs, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("kind", ["sdpa", "flex", "varlen", "window"])
def test_a_decoder(kind):
    ranks.run(2, train, kind)


def refusals():
    from longspan.integrations.torchtitan import forward_of
    place = ContextParallel(limit_s=60)
    for words, options in (("score_mod", {"score_mod": print}), ("is_causal", {"is_causal": False}), ("dropout", {"dropout_p": 0.1})):
        with pytest.raises(NotImplementedError, match=words):
            forward_of(place)(None, None, None, attention_masks=None, **options)


def test_what_is_refused():
    ranks.run(2, refusals)
