#!/usr/bin/env python3
"""Conversions of masks to the forms of frameworks (peers/support): each form, converted back to a dense mask, equals the mask.

usage: masks_test.py LONGSPAN PEERS    (the program, which draws the patterns; peers/ of the sources). Needs NumPy.
"""
import importlib.util
import json
import random
import subprocess
import sys
import tempfile
import unittest

PATTERNS = {  # name -> options that give varied masks at this length
    "full": [], "causal": [], "full_document": [], "causal_document": [], "sliding_window": ["--window", "100,37"],
    "sliding_window_causal": ["--window", "200"], "share_question": [], "causal_blockwise": [], "prefix_lm_causal": [],
    "prefix_lm_document": [], "global_sliding_window": [], "block_causal_document": [],
    "uniform_block_sparse": ["--block", "128", "--density", "0.3"],
    "variable_block_sparse": ["--block", "256", "--block-min", "64", "--density", "0.4"],
}
LENGTH = 2048
TILES = ((128, 128), (64, 128), (64, 64), (40, 24))
DENSE = [name for name in PATTERNS if not name.endswith("block_sparse")]


def dense(mask):
    """By the definition of a band."""
    seen = np.zeros((mask.rows, mask.columns), dtype=np.int8)
    for q0, q1, k0, k1, lo, hi in mask.bands:
        offset = np.arange(k0, k1)[None, :] - np.arange(q0, q1)[:, None]
        seen[q0:q1, k0:k1] += (offset >= lo) & (offset <= hi)
    assert seen.max(initial=0) <= 1, "overlapping bands"
    return seen.astype(bool)


def drawn(pattern, *more, kv_heads=1):
    words = [LONGSPAN, "mask", pattern, "--seqlen", str(LENGTH), *PATTERNS[pattern], "--json", *more]
    if pattern not in DENSE:
        words += ["--kv-heads", str(kv_heads)]
    mask = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    return [Mask.from_json({"rows": LENGTH, "columns": LENGTH, "bands": head["bands"]}) for head in mask["heads"]]


def random_mask(generator, rows, columns):
    """Disjoint bands: the square is cut into rectangles, some of which get a band."""
    bands = []

    def cut(q0, q1, k0, k1, depth):
        if q0 >= q1 or k0 >= k1:
            return
        if depth and generator.random() < 0.8:
            if generator.random() < 0.5:
                middle = generator.randint(q0, q1)
                cut(q0, middle, k0, k1, depth - 1), cut(middle, q1, k0, k1, depth - 1)
            else:
                middle = generator.randint(k0, k1)
                cut(q0, q1, k0, middle, depth - 1), cut(q0, q1, middle, k1, depth - 1)
        elif generator.random() < 0.7:
            bound = lambda: generator.choice([None, 0, generator.randint(-columns, columns)])
            lo, hi = bound(), bound()
            if lo is not None and hi is not None and lo > hi:
                lo, hi = hi, lo
            if generator.random() < 0.5:
                lo = hi = None
            bands.append([q0, q1, k0, k1, lo, hi])

    cut(0, rows, 0, columns, generator.randint(0, 4))
    return Mask.from_json({"rows": rows, "columns": columns, "bands": bands})


def from_start_end_rows(indices, causal):
    """The mask that FlashMask's bounds mean, by its documentation."""
    size = len(indices)
    i, j = np.arange(size)[:, None], np.arange(size)[None, :]
    below, above = i > j, i < j
    column = [x[None, :] for x in indices.T]
    if causal:
        end = column[1] if len(column) == 2 else size
        return ~above & ~(below & (i >= column[0]) & (i < end))
    if len(column) == 2:
        return ~(below & (i >= column[0])) & ~(above & (i < column[1]))
    return ~(below & (i >= column[0]) & (i < column[1])) & ~(above & (i >= column[2]) & (i < column[3]))


def from_blocks(row_sizes, column_sizes, grid):
    return np.repeat(np.repeat(grid, row_sizes, axis=0), column_sizes, axis=1)


class Forms(unittest.TestCase):
    def check(self, mask):
        """Checks every form of the mask; returns the names of those that it has."""
        truth = dense(mask)
        size = mask.rows
        square = mask.rows == mask.columns
        i, j = np.arange(mask.rows)[:, None], np.arange(mask.columns)[None, :]
        has = set()

        def found(form, seen):
            self.assertTrue(np.array_equal(seen, truth), form)
            has.add(form)

        if mask.is_full():
            found("full", np.ones_like(truth))
        if mask.is_causal():
            found("causal", j <= i)
        if window := mask.window():
            left, right = window
            found("window", ((left < 0) | (i - j <= left)) & ((right < 0) | (j - i <= right)))
        if documents := mask.documents():
            boundaries, causal = documents
            self.assertTrue((np.diff(boundaries) > 0).all() and boundaries[0] == 0 and boundaries[-1] == size)
            owner = np.repeat(np.arange(len(boundaries) - 1), np.diff(boundaries))
            found("documents", (owner[:, None] == owner[None, :]) & (not causal or j <= i))
        begin, end = mask.row_intervals()
        seen = np.zeros(truth.shape, dtype=np.int8)
        for b, e in zip(begin, end):
            seen += (j >= b[:, None]) & (j < e[:, None])
        found("row intervals", seen)
        rows, columns = mask.joined_row_intervals(), mask.transposed().joined_row_intervals()
        runs_of_rows = lambda seen: (np.diff(seen.astype(np.int8), axis=1, prepend=0) == 1).sum(1)
        self.assertTrue(np.array_equal((rows[0] < rows[1]).sum(0), runs_of_rows(truth)))
        self.assertEqual(len(rows[0]), max(1, runs_of_rows(truth).max()))
        found("intervals by row", pairs.by_intervals(*rows, len(rows[0]), i, j))
        found("intervals by key", pairs.by_intervals(*columns, len(columns[0]), j, i))
        for tile in TILES:
            self.check_tiles(tiles.of_intervals(*rows, mask.columns, tile), truth, tile)
        self.assertEqual(mask.every_row_sees(), bool(truth.any(1).all()))
        found("transposed", dense(mask.transposed()).T)
        if rows := mask.start_end_rows():
            indices, causal = rows
            self.assertEqual((indices.dtype, indices.shape[0]), (np.int32, mask.columns))
            self.assertIn((indices.shape[1], causal), [(1, True), (2, True), (2, False), (4, False)])
            found(f"start-end rows, {indices.shape[1]}", from_start_end_rows(indices, causal))
            has.add("start-end rows")
        elif square:  # refused correctly: some column is hidden from too many runs of rows, or from its own row
            runs = lambda hidden: int((np.diff(np.concatenate([[0], hidden.astype(int), [0]])) == 1).sum())
            self.assertTrue(any(
                runs(~truth[:c, c]) > 1 or runs(~truth[c + 1:, c]) > 1 or not truth[c, c] for c in range(size)))
        for block in (64, 128):
            if (grid := mask.blocks(block)) is not None:
                found(f"blocks of {block}", np.kron(grid, np.ones((block, block), dtype=bool)).astype(bool))
            elif mask.rectangles() and mask.rows % block == 0 and mask.columns % block == 0:  # refused correctly
                corners = np.kron(truth[::block, ::block], np.ones((block, block), dtype=bool)).astype(bool)
                self.assertFalse(np.array_equal(corners, truth))
        if (parts := masks.variable_blocks([mask])) is not None:
            found("variable blocks", from_blocks(*(part[0] for part in parts)))
            rows, columns, grid = mask.block_boundaries()
            self.assertEqual(tiles.most_runs(grid), runs_of_rows(truth).max())
            found("blocks by owner", pairs.by_blocks(*tiles.owners([(rows, columns, grid)]), 0, i, j))
            for tile in TILES:
                self.check_tiles(tiles.of_blocks(rows, columns, grid, tile), truth, tile)
        return has

    def check_tiles(self, graded, truth, tile):
        """Partial tiles, full tiles and the lists of them agree with the dense mask."""
        begins = [np.arange(0, size, side) for size, side in zip(truth.shape, tile)]
        of_tiles = lambda of: of.reduceat(of.reduceat(truth, begins[0], axis=0), begins[1], axis=1)
        some, every = of_tiles(np.logical_or), of_tiles(np.logical_and)
        for grid, expected in zip(graded, (some & ~every, every)):
            self.assertTrue(np.array_equal(grid, expected), tile)
            number, indices = tiles.listed([grid, ~grid])
            for row, count, listed in zip(np.concatenate([grid, ~grid]), number.ravel(), indices.reshape(-1, indices.shape[-1])):
                self.assertEqual(listed[:count].tolist(), np.flatnonzero(row).tolist())

    def test_patterns(self):
        forms = {pattern: self.check(drawn(pattern)[0]) for pattern in PATTERNS}
        for pattern in DENSE:
            self.assertIn("start-end rows", forms[pattern], pattern)
        expect = lambda form, *names: self.assertEqual({p for p, has in forms.items() if form in has}, set(names), form)
        expect("full", "full")
        expect("causal", "causal")
        expect("window", "full", "causal", "sliding_window", "sliding_window_causal")
        expect("documents", "full", "causal", "full_document", "causal_document")
        expect("blocks of 128", "full", "block_causal_document", "uniform_block_sparse")
        expect("start-end rows, 1", "causal", "causal_document", "sliding_window_causal", "share_question")
        self.assertIn("start-end rows, 2", forms["causal_blockwise"])
        self.assertIn("start-end rows, 4", forms["global_sliding_window"])

    def test_patterns_of_many_seeds(self):
        for pattern in ("share_question", "causal_blockwise", "prefix_lm_document", "global_sliding_window"):
            for seed in range(5):
                self.assertIn("start-end rows", self.check(drawn(pattern, "--seed", str(seed))[0]), (pattern, seed))

    def test_any_mask(self):
        generator = random.Random(20260101)
        had = set()
        for number in range(400):
            size = generator.choice([1, 2, 7, 64, 128])
            columns = size if number % 4 else generator.choice([1, 5, 64])
            had |= self.check(random_mask(generator, size, columns))
        for form in ("full", "causal", "window", "documents", "start-end rows", "blocks of 64", "variable blocks"):
            self.assertIn(form, had)  # the random masks cover each form

    def test_blocks_that_are_alike_are_a_larger_block(self):
        small = lambda grid: Mask.from_json({"rows": 64 * len(grid), "columns": 64 * len(grid[0]), "bands": [
            [64 * r, 64 * r + 64, 64 * c, 64 * c + 64, None, None] for r, c in zip(*np.nonzero(grid))]})
        grid = np.array([[1, 0, 1], [0, 0, 1], [1, 1, 0]], dtype=bool)
        alike = np.kron(grid, np.ones((2, 2), dtype=bool))
        self.assertTrue(np.array_equal(small(alike).blocks(128), grid))
        self.assertTrue(small(np.ones((6, 4))).blocks(128).all())
        for r, c in np.ndindex(alike.shape):
            other = alike.copy()
            other[r, c] = not other[r, c]
            self.assertIsNone(small(other).blocks(128))
            self.assertTrue(np.array_equal(small(other).blocks(64), other))

    def test_masks_that_differ_by_head(self):
        for pattern in ("uniform_block_sparse", "variable_block_sparse"):
            heads = drawn(pattern, kv_heads=3)
            rows, columns, grids = masks.variable_blocks(heads)
            for mask, *parts in zip(heads, rows, columns, grids):
                self.assertTrue(np.array_equal(from_blocks(*parts), dense(mask)))
            tables = tiles.owners([mask.block_boundaries() for mask in heads])
            i, j = np.arange(LENGTH)[:, None], np.arange(LENGTH)[None, :]
            for head, mask in enumerate(heads):
                self.assertTrue(np.array_equal(pairs.by_blocks(*tables, head, i, j), dense(mask)))
        self.assertIsNone(masks.variable_blocks([heads[0], drawn("causal")[0]]))

    def test_bands_of_a_file_are_those_of_the_text(self):
        generator = random.Random(5)
        far = np.iinfo(np.int64)
        for _ in range(20):
            mask = random_mask(generator, 128, 64)
            numbers = mask.bands.copy()
            numbers[:, 4][numbers[:, 4] == -masks.FAR] = far.min
            numbers[:, 5][numbers[:, 5] == masks.FAR] = far.max
            with tempfile.NamedTemporaryFile() as file:
                file.write(b"x" * 48 + numbers.tobytes() + b"y" * 48)
                file.flush()
                read = Mask.from_json({"rows": 128, "columns": 64, "file": file.name, "offset": 48, "count": len(numbers)})
            self.assertTrue(np.array_equal(read.bands, mask.bands))

    def test_a_wrong_form_would_be_seen(self):
        indices, causal = drawn("global_sliding_window")[0].start_end_rows()
        truth = dense(drawn("global_sliding_window")[0])
        for bound in range(indices.shape[1]):
            other = indices.copy()
            column = np.argmax(indices[:, bound // 2 * 2] < indices[:, bound // 2 * 2 + 1])  # the first with such a run
            other[column, bound] += 1 if bound % 2 == 0 else -1
            self.assertFalse(np.array_equal(from_start_end_rows(other, causal), truth), bound)


class Capsules(unittest.TestCase):
    def test_memory_of_another_owner_is_seen_in_place(self):
        import ctypes

        from support import cuda_memory

        class Exporter:  # what a framework's from_dlpack accepts
            def __init__(self, *what):
                self.what = what

            def __dlpack__(self, **_):
                return cuda_memory.capsule_of(*self.what, 0, cuda_memory.CPU)

            def __dlpack_device__(self):
                return (cuda_memory.CPU, 0)

        owner = (ctypes.c_float * 24)(*range(24))
        view = np.from_dlpack(Exporter(ctypes.addressof(owner), (2, 3, 4), "f32"))
        self.assertTrue(np.array_equal(view, np.arange(24, dtype=np.float32).reshape(2, 3, 4)))
        owner[5] = 99
        self.assertEqual(view[0, 1, 1], 99)
        self.assertEqual(len(cuda_memory._alive), 1)
        del view
        self.assertEqual(len(cuda_memory._alive), 0)


if __name__ == "__main__":
    LONGSPAN, PEERS = sys.argv[1:3]
    if importlib.util.find_spec("numpy") is None:
        print("skipped: no module numpy")
        sys.exit(77)  # CTest's SKIP_RETURN_CODE
    sys.path.insert(0, PEERS)
    import numpy as np

    from support import masks, tiles
    from support import seen as pairs
    from support.masks import Mask

    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
