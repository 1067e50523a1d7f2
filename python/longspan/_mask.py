"""Masks: which keys each row of queries sees, as a short list of bands."""

import base64
import ctypes
import struct
import zlib

from longspan import _core

_LOW, _HIGH = _core.UNBOUNDED_BELOW, _core.UNBOUNDED_ABOVE


def _ints(values, what):
    """A list of ints from a tensor, an array or a sequence."""
    values = values.tolist() if hasattr(values, "tolist") else list(values)
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{what}: {value!r} is not an integer")
    return values


def _window(left, right):
    """Bounds of column - row for a window; -1 is unbounded, as flash-attention has it."""
    if left < -1 or right < -1:
        raise ValueError(f"window ({left}, {right}): both must be at least 0, or -1 for no bound")
    return (_LOW if left == -1 else -left), (_HIGH if right == -1 else right)


def _shifted(bands, rows, columns):
    step = columns - rows
    return [(q0 + rows, q1 + rows, k0 + columns, k1 + columns, lo if lo == _LOW else lo + step,
             hi if hi == _HIGH else hi + step) for q0, q1, k0, k1, lo, hi in bands]


class Mask:
    """Which of `columns` keys each of `rows` queries sees. A mask is immutable and is shared by all heads, or has a
    part for each KV head. Plans are kept with the mask object, so use one object for all layers and steps.

    A band (q0, q1, k0, k1, lo, hi) shows the pairs with q0 <= row < q1, k0 <= column < k1 and
    lo <= column - row <= hi. The bands of a mask do not overlap.

    Each pattern of the program has a constructor of its name: Mask.causal(8192), Mask.sliding_window(8192,
    window=1024). They take the seqlen and the pattern's options, as `longspan mask PATTERN --help` lists them.

    Where a constructor takes integers, they may be a list, an array or a tensor; reading a tensor on a GPU waits for the
    GPU. All constructors raise ValueError or TypeError with the value that is wrong and what is allowed.
    """

    def __init__(self, masks):
        self._masks = masks  # a _core.Masks
        self._plans = {}  # by what they were made for: longspan._attention

    # ---- constructors ----

    @classmethod
    def from_bands(cls, bands, rows, columns=None):
        """The mask of int64 bands [n, 6], with as many columns as rows by default. Use Mask.UNBOUNDED_BELOW and
        Mask.UNBOUNDED_ABOVE for lo and hi without a bound. Raises ValueError if two bands overlap."""
        bands = bands.tolist() if hasattr(bands, "tolist") else [list(band) for band in bands]
        for i, band in enumerate(bands):
            if len(band) != 6:
                raise ValueError(f"band {i} has {len(band)} numbers, it needs 6: q0, q1, k0, k1, lo, hi")
        flat = _ints([x for band in bands for x in band], "bands")
        array = (ctypes.c_int64 * max(1, len(flat)))(*flat)
        return cls(_core.Masks("masks_from_bands", rows, rows if columns is None else columns, array, len(bands)))

    @classmethod
    def pattern(cls, name, seqlen, **options):
        """The mask of a named pattern of `longspan list masks`, as the program draws it. Values are numbers, or text as
        on the command line."""
        texts = {key: ":".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)
                 for key, value in options.items()}
        names = (ctypes.c_char_p * max(1, len(texts)))(*(key.encode() for key in texts))
        values = (ctypes.c_char_p * max(1, len(texts)))(*(value.encode() for value in texts.values()))
        return cls(_core.Masks("masks_of_pattern", name.encode(), seqlen, names, values, len(texts)))

    @classmethod
    def window(cls, seqlen, left=-1, right=-1):
        """Row i sees columns i - left to i + right; -1 is unbounded."""
        return cls.from_bands([(0, seqlen, 0, seqlen, *_window(left, right))], seqlen)

    @classmethod
    def documents(cls, lengths, inner="causal"):
        """Packed documents, one after another, that do not see each other.

        lengths: in tokens; their sum is the mask's size.
        inner: the mask within each: "causal", "full", (left, right) for a window, or a function from a length to a Mask.
        """
        if inner == "causal":
            inner = (-1, 0)
        elif inner == "full":
            inner = (-1, -1)
        elif isinstance(inner, str):
            raise ValueError(f"inner {inner!r}: must be 'causal', 'full', (left, right) or a function")
        lengths = _ints(lengths, "lengths")
        if any(length < 0 for length in lengths):
            raise ValueError(f"lengths: {min(lengths)} is negative")
        if callable(inner):
            return cls.batch([inner(length) for length in lengths if length > 0])
        bounds, bands, begin = _window(*inner), [], 0
        for length in lengths:
            bands.append((begin, begin + length, begin, begin + length, *bounds))
            begin += length
        return cls.from_bands(bands, begin)

    @classmethod
    def shared_question(cls, lengths):
        """A question and its answers: each answer sees the question and itself causally, and no other answer.
        lengths: of the question, then of each answer."""
        lengths = _ints(lengths, "lengths")
        return cls.tree([-1] + [0] * (len(lengths) - 1), lengths)

    @classmethod
    def tree(cls, parents, lengths):
        """A tree of segments, as rollouts with shared prefixes have: a token sees the segments of its ancestors and
        its own segment causally.

        parents: of each segment, the number of one before it in the list; -1 for a root.
        lengths: of the segments, which lie one after another, in tokens.
        """
        parents, lengths = _ints(parents, "parents"), _ints(lengths, "lengths")
        if len(parents) != len(lengths):
            raise ValueError(f"{len(parents)} parents and {len(lengths)} lengths: there must be as many of each")
        begins, total = [], 0
        for length in lengths:
            if length < 0:
                raise ValueError(f"lengths: {length} is negative")
            begins.append(total)
            total += length
        bands = []
        for i, parent in enumerate(parents):
            if not -1 <= parent < i:
                raise ValueError(f"parents[{i}] is {parent}: must be -1, or a segment before {i}")
            rows = (begins[i], begins[i] + lengths[i])
            bands.append((*rows, *rows, _LOW, 0))
            while parent >= 0:
                end = begins[parent] + lengths[parent]
                begin = begins[parent]
                parent = parents[parent]
                while parent >= 0 and begins[parent] + lengths[parent] == begin:  # neighbours in memory
                    begin = begins[parent]
                    parent = parents[parent]
                bands.append((*rows, begin, end, _LOW, _HIGH))
        return cls.from_bands(bands, total)

    @classmethod
    def from_cu_seqlens(cls, cu_seqlens_q, cu_seqlens_k=None, *, causal=False, window=(-1, -1)):
        """Packed sequences, as flash-attention has them. If a sequence has more keys than rows, its last row and its
        last key are aligned.

        cu_seqlens_q, cu_seqlens_k: cumulative lengths of rows and of keys, [0, n0, n0 + n1, ...], integers
        [sequences + 1]; the same for both by default.
        causal: a row sees no key after it.
        window: (left, right), -1 for no bound.
        """
        starts_q = _ints(cu_seqlens_q, "cu_seqlens_q")
        starts_k = starts_q if cu_seqlens_k is None else _ints(cu_seqlens_k, "cu_seqlens_k")
        for name, starts in (("cu_seqlens_q", starts_q), ("cu_seqlens_k", starts_k)):
            if not starts or starts[0] != 0 or any(a > b for a, b in zip(starts, starts[1:])):
                raise ValueError(f"{name}: must begin with 0 and never fall")
        if len(starts_q) != len(starts_k):
            raise ValueError(f"{len(starts_q) - 1} sequences of rows and {len(starts_k) - 1} of keys")
        lo, hi = _window(*window)
        if causal:
            hi = min(hi, 0)
        bands = []
        for q0, q1, k0, k1 in zip(starts_q, starts_q[1:], starts_k, starts_k[1:]):
            bands += _shifted([(q0 - q1, 0, k0 - k1, 0, lo, hi)], q1, k1)
        return cls.from_bands(bands, starts_q[-1], starts_k[-1])

    @classmethod
    def from_position_ids(cls, position_ids, inner="causal"):
        """Packed documents by the positions of their tokens, integers [T] or [1, T]: a document begins wherever a
        position does not follow the one before. `inner` is that of Mask.documents()."""
        ids = position_ids.reshape(-1) if hasattr(position_ids, "reshape") else position_ids
        ids = _ints(ids, "position_ids")
        starts = [i for i, position in enumerate(ids) if i == 0 or position != ids[i - 1] + 1]
        return cls.documents([b - a for a, b in zip(starts, starts[1:] + [len(ids)])], inner)

    @classmethod
    def from_dense(cls, visible):
        """The mask of a bool tensor [rows, columns], or [heads_kv, rows, columns]; True is visible. It is read on the CPU."""
        import torch
        visible = torch.as_tensor(visible)
        if visible.dtype != torch.bool or visible.dim() not in (2, 3):
            raise ValueError(f"visible: must be bool [rows, columns] or [heads, rows, columns], not {visible.dtype} "
                             f"{list(visible.shape)}")
        if visible.dim() == 3:
            return cls.per_head([cls.from_dense(head) for head in visible])
        visible = visible.detach().cpu().contiguous()
        return cls(_core.Masks("masks_from_dense", visible.data_ptr(), *visible.shape))

    @classmethod
    def from_ranges(cls, q_ranges, k_ranges, types=None, *, rows=None, columns=None):
        """Pairs of a range of rows and a range of keys, as MagiAttention has them.

        q_ranges, k_ranges: integers [n, 2], begin and end.
        types: of each pair: 0 or "full", the default; 1 or "causal" (aligned at the last row and key); 2 or "inverse"
        (aligned at the first); 3 or "both".
        rows, columns: the mask's size; the largest end by default.

        Raises ValueError if two ranges cover a pair twice.
        """
        q_ranges = [_ints(r, "q_ranges") for r in q_ranges]
        k_ranges = [_ints(r, "k_ranges") for r in k_ranges]
        names = {"full": 0, "causal": 1, "inverse": 2, "both": 3}
        types = [0] * len(q_ranges) if types is None else [names.get(t, t) for t in
                                                           (types.tolist() if hasattr(types, "tolist") else types)]
        if not len(q_ranges) == len(k_ranges) == len(types):
            raise ValueError(f"{len(q_ranges)} q_ranges, {len(k_ranges)} k_ranges and {len(types)} types: there must "
                             "be as many of each")
        bands = []
        for (q0, q1), (k0, k1), kind in zip(q_ranges, k_ranges, types):
            if kind not in (0, 1, 2, 3):
                raise ValueError(f"type {kind!r}: must be 0 to 3, or full, causal, inverse or both")
            bands.append((q0, q1, k0, k1, k0 - q0 if kind & 2 else _LOW, k1 - q1 if kind & 1 else _HIGH))
        return cls.from_bands(bands, max((r[1] for r in q_ranges), default=0) if rows is None else rows,
                              max((r[1] for r in k_ranges), default=0) if columns is None else columns)

    @classmethod
    def block_sparse(cls, blocks, block=None, *, edges=None):
        """Blocks of rows and keys. Give either `block` or `edges`.

        blocks: bool [n, m], or [heads_kv, n, m] for a mask for each KV head; True is visible.
        block: the size of all blocks in tokens, a number or (rows, keys).
        edges: where blocks of any sizes begin and end, (n + 1 row edges, m + 1 key edges).
        """
        import torch
        blocks = torch.as_tensor(blocks)
        if blocks.dtype != torch.bool or blocks.dim() not in (2, 3):
            raise ValueError(f"blocks: must be bool [n, m] or [heads, n, m], not {blocks.dtype} {list(blocks.shape)}")
        if (block is None) == (edges is None):
            raise ValueError("give either block or edges")
        if blocks.dim() == 3:
            return cls.per_head([cls.block_sparse(head, block, edges=edges) for head in blocks])
        n, m = blocks.shape
        if edges is None:
            q_size, k_size = (block, block) if isinstance(block, int) else block
            q_edges, k_edges = [i * q_size for i in range(n + 1)], [i * k_size for i in range(m + 1)]
        else:
            q_edges, k_edges = _ints(edges[0], "row edges"), _ints(edges[1], "key edges")
            if len(q_edges) != n + 1 or len(k_edges) != m + 1:
                raise ValueError(f"{len(q_edges)} and {len(k_edges)} edges for {n} x {m} blocks: must be {n + 1} and "
                                 f"{m + 1}")
        bands = []
        for i, row in enumerate(blocks.cpu().tolist()):
            j = 0
            while j < m:
                if not row[j]:
                    j += 1
                    continue
                first = j
                while j < m and row[j]:
                    j += 1
                bands.append((q_edges[i], q_edges[i + 1], k_edges[first], k_edges[j], _LOW, _HIGH))
        return cls.from_bands(bands, q_edges[-1], k_edges[-1])

    @classmethod
    def from_block_mask(cls, block_mask):
        """The mask of FlexAttention's BlockMask. mask_mod is evaluated in partial blocks alone. Heads of the BlockMask
        are KV heads; its batches become one mask, as of Mask.batch()."""
        import torch
        batches, heads = block_mask.kv_num_blocks.shape[:2]
        rows, columns = block_mask.seq_lengths
        q_size, k_size = block_mask.BLOCK_SIZE

        def one(b, h):
            bands = []
            for full in (False, True):
                counts = block_mask.full_kv_num_blocks if full else block_mask.kv_num_blocks
                indices = block_mask.full_kv_indices if full else block_mask.kv_indices
                if counts is None:
                    continue
                counts, indices = counts[b, h].tolist(), indices[b, h].cpu()
                for i, count in enumerate(counts):
                    q0, q1 = i * q_size, min((i + 1) * q_size, rows)
                    for j in sorted(indices[i, :count].tolist()):
                        k0, k1 = j * k_size, min((j + 1) * k_size, columns)
                        if q0 >= q1 or k0 >= k1:
                            continue
                        if full:
                            bands.append((q0, q1, k0, k1, _LOW, _HIGH))
                            continue
                        device = block_mask.kv_num_blocks.device
                        q, k = torch.arange(q0, q1, device=device), torch.arange(k0, k1, device=device)
                        number = [torch.tensor(x, device=device) for x in (b, h)]
                        visible = block_mask.mask_mod(*number, q[:, None], k[None, :]).expand(q1 - q0, k1 - k0)
                        bands += _shifted(cls.from_dense(visible).bands(), q0, k0)
            return cls.from_bands(bands, rows, columns)

        masks = [cls.per_head([one(b, h) for h in range(heads)]) if heads > 1 else one(b, 0) for b in range(batches)]
        return masks[0] if batches == 1 else cls.batch(masks)

    @classmethod
    def batch(cls, masks):
        """Sequences one after another, each with a mask of its own, as q, k and v [B, S, H, D] have them."""
        masks = list(masks)
        heads = max((mask.heads for mask in masks), default=1)
        parts = []
        for head in range(heads):
            bands, rows, columns = [], 0, 0
            for mask in masks:
                if mask.heads not in (1, heads):
                    raise ValueError(f"masks for {mask.heads} and for {heads} heads in one batch")
                bands += _shifted(mask.bands(head if mask.heads > 1 else 0), rows, columns)
                rows, columns = rows + mask.shape[0], columns + mask.shape[1]
            parts.append(cls.from_bands(bands, rows, columns))
        return parts[0] if heads == 1 else cls.per_head(parts)

    @classmethod
    def per_head(cls, masks):
        """A mask for each KV head, from masks of the same size."""
        masks = list(masks)
        handles = (ctypes.c_void_p * max(1, len(masks)))(*(mask._masks.handle for mask in masks))
        return cls(_core.Masks("masks_per_head", handles, len(masks)))

    # ---- what a mask says ----

    @property
    def shape(self):
        """(rows, columns)"""
        return self._masks.info.rows, self._masks.info.columns

    @property
    def heads(self):
        """The number of KV heads that have masks of their own; 1 if all share one."""
        return self._masks.info.heads

    @property
    def area(self):
        """Visible pairs; of all KV heads together, if they differ."""
        return self._masks.info.area

    def bands(self, head=0):
        """The bands of a KV head's mask: a list of (q0, q1, k0, k1, lo, hi)."""
        count = ctypes.c_int64()
        _core.call("masks_band_count", self._masks.handle, head, ctypes.byref(count))
        flat = (ctypes.c_int64 * (6 * max(1, count.value)))()
        _core.call("masks_bands", self._masks.handle, head, flat)
        return [tuple(flat[6 * i:6 * i + 6]) for i in range(count.value)]

    def visible_counts(self, head=0):
        """How many keys each row of a KV head's mask sees: a list of `rows` ints."""
        counts = (ctypes.c_int64 * max(1, self.shape[0]))()
        _core.call("masks_visible_counts", self._masks.handle, head, counts)
        return counts[:self.shape[0]]

    def to_dense(self):
        """A bool tensor [rows, columns] on the CPU, or [heads_kv, rows, columns] if heads differ."""
        import torch
        dense = torch.empty((self.heads, *self.shape), dtype=torch.bool)
        for head in range(self.heads):
            _core.call("masks_dense", self._masks.handle, head, dense[head].data_ptr())
        return dense if self.heads > 1 else dense[0]

    def picture(self, size=256, head=0):
        """A PNG of `size` x `size` pixels, as bytes: row 0 at the top, key 0 at the left, the darker the more is
        visible."""
        grid = (ctypes.c_uint8 * (size * size))()
        _core.call("masks_density", self._masks.handle, head, size, grid)
        lines = b"".join(b"\0" + bytes(255 - x for x in grid[y * size:(y + 1) * size]) for y in range(size))

        def chunk(kind, data):
            return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

        return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 0, 0, 0, 0)) +
                chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b""))

    def __and__(self, other):
        """The pairs that both masks show. Raises ValueError if the sizes differ."""
        if not isinstance(other, Mask):
            return NotImplemented
        return Mask(_core.Masks("masks_intersected", self._masks.handle, other._masks.handle))

    def __repr__(self):
        rows, columns = self.shape
        heads = f", {self.heads} KV heads" if self.heads > 1 else ""
        share = self.area / max(1, rows * columns * self.heads)
        return f"<longspan.Mask {rows} x {columns}{heads}, {share:.1%} visible>"

    def _repr_html_(self):
        picture = base64.b64encode(self.picture()).decode()
        text = repr(self).replace("<", "").replace(">", "")
        return f'<figure><img src="data:image/png;base64,{picture}"><figcaption>{text}</figcaption></figure>'


Mask.UNBOUNDED_BELOW, Mask.UNBOUNDED_ABOVE = _LOW, _HIGH


def _add_pattern(name):
    def make(cls, seqlen, **options):
        return cls.pattern(name, seqlen, **options)

    make.__name__, make.__doc__ = name, f"The pattern {name}: `longspan mask {name} --help` lists its options."
    setattr(Mask, name, classmethod(make))


for _name in _core.patterns():
    _add_pattern(_name)
