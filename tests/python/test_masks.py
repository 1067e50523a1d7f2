"""Every constructor of masks, against the condition that it stands for."""

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask

import longspan
from longspan import Mask, _core


def dense(rows, columns, condition):
    i, j = torch.arange(rows)[:, None], torch.arange(columns)[None, :]
    return condition(i, j).expand(rows, columns)


def same(mask, visible):
    assert torch.equal(mask.to_dense(), visible)
    assert mask.area == int(visible.sum())


def documents(lengths):
    return torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))


LENGTHS = [30, 1, 0, 40, 25]


def test_window():
    same(Mask.window(50), dense(50, 50, lambda i, j: i == i))
    same(Mask.window(50, -1, 0), dense(50, 50, lambda i, j: j <= i))
    same(Mask.window(50, 7, 3), dense(50, 50, lambda i, j: (j >= i - 7) & (j <= i + 3)))
    same(Mask.window(50, 0, -1), dense(50, 50, lambda i, j: j >= i))


def test_documents():
    number = documents(LENGTHS)
    of_same = number[:, None] == number[None, :]
    causal = dense(96, 96, lambda i, j: j <= i)
    same(Mask.documents(LENGTHS), of_same & causal)
    same(Mask.documents(LENGTHS, "full"), of_same)
    same(Mask.documents(LENGTHS, (5, 2)), of_same & dense(96, 96, lambda i, j: (j >= i - 5) & (j <= i + 2)))
    prefixes = Mask.documents([6, 9], lambda n: Mask.from_bands([(0, n, 0, 3, *UNBOUNDED), (0, n, 3, n, UNBOUNDED[0], 0)], n))
    first = torch.tensor([0] * 6 + [6] * 9)
    number = documents([6, 9])
    same(prefixes, (number[:, None] == number) & dense(15, 15, lambda i, j: (j < first[i] + 3) | (j <= i)))


UNBOUNDED = (Mask.UNBOUNDED_BELOW, Mask.UNBOUNDED_ABOVE)


def test_cu_seqlens():
    same(Mask.from_cu_seqlens(torch.tensor([0, 30, 31, 31, 96]), causal=True), Mask.documents([30, 1, 0, 65]).to_dense())
    # Five rows at the end of seven keys, then three rows and two keys, of which the last ones are aligned.
    mask = Mask.from_cu_seqlens([0, 5, 8], [0, 7, 9], causal=True)
    visible = torch.zeros(8, 9, dtype=torch.bool)
    visible[:5, :7] = dense(5, 7, lambda i, j: j <= i + 2)
    visible[5:, 7:] = dense(3, 2, lambda i, j: j <= i - 1)
    same(mask, visible)
    visible[:5, :7] &= dense(5, 7, lambda i, j: j >= i + 2 - 3)
    visible[5:, 7:] &= dense(3, 2, lambda i, j: j >= i - 1 - 3)
    same(Mask.from_cu_seqlens([0, 5, 8], [0, 7, 9], causal=True, window=(3, -1)), visible)


def test_position_ids():
    ids = torch.cat([torch.arange(n) for n in (30, 1, 40, 25)])
    same(Mask.from_position_ids(ids), Mask.documents([30, 1, 40, 25]).to_dense())
    same(Mask.from_position_ids(ids[None]), Mask.documents([30, 1, 40, 25]).to_dense())


def test_trees():
    parents, lengths = [-1, 0, 0, 2, 1, -1], [7, 5, 4, 3, 6, 2]
    ancestors = torch.eye(6, dtype=torch.bool)
    for i, parent in enumerate(parents):
        if parent >= 0:
            ancestors[i] |= ancestors[parent]
    segment = documents(lengths)
    same(Mask.tree(parents, lengths), ancestors[segment][:, segment] & dense(27, 27, lambda i, j: j <= i))
    assert torch.equal(Mask.shared_question([7, 5, 4]).to_dense(), Mask.tree([-1, 0, 0], [7, 5, 4]).to_dense())
    assert len(Mask.tree([-1, 0, 1, 2], [5, 5, 5, 5]).bands()) == 7  # ancestors that are neighbours are one band


def test_dense():
    for name in _core.patterns():
        if "sparse" in name or "block" in name:
            continue
        mask = getattr(Mask, name)(64) if "document" not in name and "share" not in name else getattr(Mask, name)(
            64, lengths="uniform:1:20")
        same(Mask.from_dense(mask.to_dense()), mask.to_dense())
    heads = torch.rand(3, 20, 30) < 0.5
    assert torch.equal(Mask.from_dense(heads).to_dense(), heads)


def test_ranges():
    mask = Mask.from_ranges([(0, 8), (8, 20), (20, 30)], [(0, 8), (0, 20), (10, 30)], ["causal", "full", 2])
    visible = torch.zeros(30, 30, dtype=torch.bool)
    visible[:8, :8] = dense(8, 8, lambda i, j: j <= i)
    visible[8:20, :20] = True
    visible[20:, 10:] = dense(10, 20, lambda i, j: j >= i)
    same(mask, visible)
    with pytest.raises(ValueError, match="overlap"):
        Mask.from_ranges([(0, 8), (4, 8)], [(0, 8), (0, 8)])


@pytest.mark.parametrize("heads", [1, 2])
def test_block_masks(heads):
    number = documents([100, 60, 140])

    def rule(b, h, q, k):
        return (number[q] == number[k]) & (q >= k) & ((h == 0) | (q - k < 50))

    block_mask = create_block_mask(rule, B=None, H=heads if heads > 1 else None, Q_LEN=300, KV_LEN=300, device="cpu",
                                   BLOCK_SIZE=64)
    visible = torch.stack([dense(300, 300, lambda i, j: rule(0, torch.tensor(h), i, j)) for h in range(heads)])
    same(Mask.from_block_mask(block_mask), visible if heads > 1 else visible[0])


def test_blocks():
    blocks = torch.rand(2, 4, 5) < 0.5
    wide = blocks.repeat_interleave(16, 1).repeat_interleave(8, 2)
    same(Mask.block_sparse(blocks, (16, 8)), wide)
    edges = [0, 3, 10, 11, 20], [0, 1, 2, 9, 17, 30]
    sizes = [torch.tensor(e).diff() for e in edges]
    same(Mask.block_sparse(blocks[0], edges=edges), blocks[0].repeat_interleave(sizes[0], 0).repeat_interleave(sizes[1], 1))


def test_batches_and_heads():
    a, b = Mask.causal(5), Mask.window(7)
    same(Mask.batch([a, b]), torch.block_diag(a.to_dense(), b.to_dense()).bool())
    c = Mask.per_head([Mask.causal(5), Mask.window(5)])
    assert c.heads == 2
    same(c, torch.stack([Mask.causal(5).to_dense(), torch.ones(5, 5, dtype=torch.bool)]))
    assert Mask.batch([c, a]).heads == 2


def test_and():
    a, b = Mask.documents([40, 56]), Mask.window(96, 10, 10)
    same(a & b, a.to_dense() & b.to_dense())
    heads = Mask.per_head([a, b])
    same(heads & b, heads.to_dense() & b.to_dense())


def test_what_a_mask_says():
    mask = Mask.causal(300)
    assert mask.shape == (300, 300) and mask.heads == 1 and mask.visible_counts() == list(range(1, 301))
    assert mask.picture(32).startswith(b"\x89PNG") and "img" in mask._repr_html_() and "300 x 300" in repr(mask)
    assert mask.bands() == [(0, 300, 0, 300, UNBOUNDED[0], 0)]
    assert Mask.sliding_window(2048, window=100).area == Mask.pattern("sliding_window", 2048, window="100").area


@pytest.mark.parametrize("make, error, words", [
    (lambda: Mask.from_bands([(0, 4, 0, 4, 0)], 4), ValueError, "needs 6"),
    (lambda: Mask.from_bands([(0, 4, 0, 4, *UNBOUNDED), (2, 3, 0, 1, *UNBOUNDED)], 4), ValueError, "overlap"),
    (lambda: Mask.from_bands([(0, 4, 0, 4, 1, 0)], 4), ValueError, "lo must not be above hi"),
    (lambda: Mask.from_bands([(0.5, 4, 0, 4, *UNBOUNDED)], 4), TypeError, "not an integer"),
    (lambda: Mask.pattern("diagonal", 8), ValueError, "causal"),
    (lambda: Mask.causal(8, window=3), ValueError, "window"),
    (lambda: Mask.window(8, -2), ValueError, "-1 for no bound"),
    (lambda: Mask.documents([3, -1]), ValueError, "negative"),
    (lambda: Mask.documents([3], "diagonal"), ValueError, "causal"),
    (lambda: Mask.tree([0], [3]), ValueError, "before 0"),
    (lambda: Mask.tree([-1], [3, 4]), ValueError, "as many"),
    (lambda: Mask.from_cu_seqlens([1, 2]), ValueError, "begin with 0"),
    (lambda: Mask.from_cu_seqlens([0, 3, 2]), ValueError, "never fall"),
    (lambda: Mask.from_cu_seqlens([0, 3], [0, 1, 2]), ValueError, "sequences"),
    (lambda: Mask.from_dense(torch.ones(3, 3)), ValueError, "bool"),
    (lambda: Mask.from_ranges([(0, 1)], [(0, 1)], ["sideways"]), ValueError, "sideways"),
    (lambda: Mask.block_sparse(torch.ones(2, 2, dtype=torch.bool)), ValueError, "block or edges"),
    (lambda: Mask.block_sparse(torch.ones(2, 2, dtype=torch.bool), edges=([0, 1], [0, 1, 2])), ValueError, "edges"),
    (lambda: Mask.per_head([]), ValueError, "one for each"),
    (lambda: Mask.per_head([Mask.causal(3), Mask.causal(4)]), ValueError, "size"),
    (lambda: Mask.causal(3) & Mask.causal(4), ValueError, "same size"),
    (lambda: Mask.causal(3).bands(1), ValueError, "head 1"),
])
def test_mistakes(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_import_needs_no_torch():
    import subprocess
    import sys
    code = "import sys, longspan; longspan.Mask.causal(8).bands(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert longspan.__version__
