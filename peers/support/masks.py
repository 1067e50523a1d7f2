"""Masks as bands, and their conversion to the forms that frameworks use. A conversion returns None unless it is exact."""

import numpy as np

FAR = 1 << 60  # stands for an unbounded side


def _painted(rows, columns, r0, r1, c0, c1):
    """[rows, columns] bool: which cells lie in one of the disjoint rectangles. Suits millions of them: each corner is written
    once, and two running sums fill the area between."""
    corners = lambda r, c: np.bincount(r * (columns + 1) + c, minlength=(rows + 1) * (columns + 1))
    steps = corners(r0, c0) + corners(r1, c1) - corners(r0, c1) - corners(r1, c0)
    grid = np.cumsum(np.cumsum(steps.reshape(rows + 1, columns + 1), axis=0), axis=1)
    return grid[:rows, :columns] > 0


def _edges(size, *positions):
    """The sorted distinct positions, including 0 and `size`, and the index of each."""
    there = np.zeros(size + 1, dtype=bool)
    there[[0, size]] = True
    for some in positions:
        there[some] = True
    return np.flatnonzero(there), np.cumsum(there) - 1


class Mask:
    """Disjoint bands: row in [q0, q1), column in [k0, k1), lo <= column - row <= hi."""

    def __init__(self, rows, columns, bands):
        self.rows, self.columns = rows, columns
        self.bands = np.asarray(bands, dtype=np.int64).reshape(-1, 6)  # q0, q1, k0, k1, lo, hi

    @staticmethod
    def from_json(mask):
        if "file" in mask:
            bands = np.fromfile(mask["file"], np.int64, 6 * mask["count"], offset=mask["offset"]).reshape(-1, 6)
            lo, hi = bands[:, 4], bands[:, 5]
            lo[lo == np.iinfo(np.int64).min] = -FAR
            hi[hi == np.iinfo(np.int64).max] = FAR
            return Mask(mask["rows"], mask["columns"], bands)
        bands = [
            [q0, q1, k0, k1, -FAR if lo is None else lo, FAR if hi is None else hi]
            for q0, q1, k0, k1, lo, hi in mask["bands"]
        ]
        return Mask(mask["rows"], mask["columns"], bands)

    def _only_band(self):
        if len(self.bands) != 1:
            return None
        q0, q1, k0, k1, lo, hi = (int(x) for x in self.bands[0])
        return (lo, hi) if (q0, q1, k0, k1) == (0, self.rows, 0, self.columns) else None

    def is_full(self):
        return self._only_band() == (-FAR, FAR)

    def is_causal(self):
        if self.rows == self.columns == 1:
            return self.is_full()
        return self.rows == self.columns and self._only_band() == (-FAR, 0)

    def window(self):
        """(left, right) of `-right <= row - column <= left`, -1 for an unbounded side; None if this is not a window."""
        bounds = self._only_band()
        if bounds is None or self.rows != self.columns:
            return None
        lo, hi = bounds
        if (lo != -FAR and lo > 0) or (hi != FAR and hi < 0):
            return None
        return (-1 if lo == -FAR else -lo, -1 if hi == FAR else hi)

    def documents(self):
        """(boundaries, causal) if each token sees only its own document; None otherwise."""
        if self.rows != self.columns or len(self.bands) == 0:
            return None
        bands = self.bands[np.argsort(self.bands[:, 0], kind="stable")]
        q0, q1, k0, k1, lo, hi = bands.T
        boundaries = np.append(q0, self.rows)
        if not ((q0 == k0) & (q1 == k1)).all() or q0[0] != 0 or not (q1 == boundaries[1:]).all():
            return None
        if not (lo == -FAR).all():
            return None
        single = (q1 - q0 == 1) & (hi >= 0)  # a document of one token is causal and full
        if ((hi == FAR) | single).all():
            return boundaries, False
        if ((hi == 0) | single).all():
            return boundaries, True
        return None

    def row_intervals(self):
        """begin, end [n, rows]: row i sees exactly the columns of [begin[s, i], end[s, i]) for each s."""
        count = np.zeros(self.rows, dtype=np.int64)
        slots = []
        for q0, q1, k0, k1, lo, hi in self.bands:
            rows = np.arange(q0, q1)
            begin = np.maximum(k0, rows + lo)
            end = np.minimum(k1, rows + hi + 1)
            some = begin < end
            rows, begin, end = rows[some], begin[some], end[some]
            used = count[rows]
            for slot in np.unique(used):
                if slot == len(slots):
                    slots.append((np.zeros(self.rows, np.int64), np.zeros(self.rows, np.int64)))
                here = used == slot
                slots[slot][0][rows[here]] = begin[here]
                slots[slot][1][rows[here]] = end[here]
            count[rows] += 1
        if not slots:
            slots.append((np.zeros(self.rows, np.int64), np.zeros(self.rows, np.int64)))
        return np.stack([s[0] for s in slots]), np.stack([s[1] for s in slots])

    def joined_row_intervals(self):
        """The same in ascending order, with touching intervals joined."""
        begin, end = self.row_intervals()
        empty = begin >= end
        begin[empty] = end[empty] = FAR
        order = np.argsort(begin, axis=0, kind="stable")
        begin, end = np.take_along_axis(begin, order, 0), np.take_along_axis(end, order, 0)
        filled = begin < end
        opens = filled.copy()
        opens[1:] &= begin[1:] != end[:-1]
        slot = np.cumsum(opens, axis=0) - 1
        joined = np.zeros((2, max(1, int(slot.max()) + 1), self.rows), dtype=np.int64)
        for s in range(len(begin)):  # the last of several touching intervals sets the end
            some = np.flatnonzero(filled[s])
            first = np.flatnonzero(opens[s])
            joined[0, slot[s, first], first] = begin[s, first]
            joined[1, slot[s, some], some] = end[s, some]
        return joined[0], joined[1]

    def transposed(self):
        """The mask with rows and columns exchanged."""
        q0, q1, k0, k1, lo, hi = self.bands.T
        return Mask(self.columns, self.rows, np.stack([k0, k1, q0, q1, -hi, -lo], axis=1))

    def start_end_rows(self):
        """(indices [columns, 1 or 2 or 4], causal): the rows that each column is hidden from, in FlashMask's form. None if some
        column is hidden from more than one run of rows below the diagonal, or above it.

        With bounds (a, b, c, d), column j is hidden from rows [a, b) below the diagonal and from [c, d) above it. Four bounds
        are these. Two bounds are (a, d), with b = rows and c = 0; if causal, they are (a, b), and all rows above the diagonal
        are hidden. One bound, always causal, is (a) with b = rows."""
        if self.rows != self.columns:
            return None
        size = self.rows
        begin, end = self.transposed().row_intervals()  # of the rows that see each column
        order = np.argsort(begin, axis=0, kind="stable")
        begin, end = np.take_along_axis(begin, order, 0), np.take_along_axis(end, order, 0)
        seen_to = np.maximum.accumulate(end, axis=0)
        edge = np.zeros((1, size), dtype=np.int64)
        gap_begin, gap_end = np.concatenate([edge, seen_to]), np.concatenate([begin, edge + size])
        column = np.arange(size)
        gap = gap_begin < gap_end
        below, above = gap & (gap_begin > column), gap & (gap_end <= column)
        if (gap & ~below & ~above).any() or (below.sum(0) > 1).any() or (above.sum(0) > 1).any():
            return None
        pick = lambda where, bound, otherwise: np.where(where.any(0), (where * bound).sum(0), otherwise)
        a, b = pick(below, gap_begin, size), pick(below, gap_end, size)
        c, d = pick(above, gap_begin, 0), pick(above, gap_end, 0)
        ends, starts = (b == size).all(), (c == 0).all()
        if starts and (d == column).all():
            return np.stack([a] if ends else [a, b], axis=1).astype(np.int32), True
        return np.stack([a, d] if ends and starts else [a, b, c, d], axis=1).astype(np.int32), False

    def every_row_sees(self):
        q0, q1, k0, k1, lo, hi = self.bands.T
        # Rows of the band that see one of its columns: those with row + lo < k1 and row + hi >= k0.
        begin, end = np.maximum(q0, k0 - hi), np.minimum(q1, k1 - lo)
        some = begin < end
        changes = lambda at: np.bincount(at[some], minlength=self.rows + 1)
        return bool((np.cumsum(changes(begin) - changes(end))[: self.rows] > 0).all())

    def rectangles(self):
        """Whether no band has a diagonal bound, so that the mask consists of blocks."""
        return bool(((self.bands[:, 4] == -FAR) & (self.bands[:, 5] == FAR)).all())

    def blocks(self, size):
        """[row blocks, column blocks] bool: which blocks of size x size are visible; None if the mask has other blocks."""
        if self.rows % size or self.columns % size or (parts := self.block_boundaries()) is None:
            return None
        *boundaries, grid = parts
        for axis, (edges, tokens) in enumerate(zip(boundaries, (self.rows, self.columns))):
            inside = np.flatnonzero(edges[1:-1] % size) + 1  # boundaries that no block has: the mask must not change there
            if not np.array_equal(np.take(grid, inside - 1, axis), np.take(grid, inside, axis)):
                return None
            grid = np.take(grid, np.searchsorted(edges, np.arange(0, tokens, size), side="right") - 1, axis)
        return grid

    def block_boundaries(self):
        """Row and column boundaries and the grid between them, for blocks of any sizes; None if a band has a diagonal bound."""
        if not self.rectangles():
            return None
        q0, q1, k0, k1 = self.bands[:, :4].T
        rows, row_number = _edges(self.rows, q0, q1)
        columns, column_number = _edges(self.columns, k0, k1)
        grid = _painted(
            len(rows) - 1, len(columns) - 1, row_number[q0], row_number[q1], column_number[k0], column_number[k1])
        return rows, columns, grid

    def dense(self, device):
        """[rows, columns] bool on a torch device."""
        import torch

        mask = torch.zeros(self.rows, self.columns, dtype=torch.bool, device=device)
        step = 4096
        for q0, q1, k0, k1, lo, hi in self.bands.tolist():
            if lo == -FAR and hi == FAR:
                mask[q0:q1, k0:k1] = True
                continue
            columns = torch.arange(k0, k1, device=device, dtype=torch.int32)
            for begin in range(q0, q1, step):
                end = min(q1, begin + step)
                offset = columns[None, :] - torch.arange(begin, end, device=device, dtype=torch.int32)[:, None]
                mask[begin:end, k0:k1] |= (offset >= max(lo, -FAR >> 30)) & (offset <= min(hi, FAR >> 30))
        return mask


def _with_more_blocks(boundaries, grid, count, axis):
    """The same mask with `count` blocks along an axis, made by halving the largest blocks."""
    boundaries = list(boundaries)
    while len(boundaries) - 1 < count:
        largest = int(np.argmax(np.diff(boundaries)))
        middle = (boundaries[largest] + boundaries[largest + 1]) // 2
        boundaries.insert(largest + 1, middle)
        grid = np.insert(grid, largest, np.take(grid, largest, axis), axis)
    return boundaries, grid


def variable_blocks(masks):
    """(row sizes [masks, n], column sizes [masks, m], grids [masks, n, m]) of block masks. Block sizes differ by mask, but all
    get the same number of blocks. None if a mask does not consist of blocks."""
    parts = [mask.block_boundaries() for mask in masks]
    if any(part is None for part in parts):
        return None
    most = np.max([grid.shape for _, _, grid in parts], axis=0)
    sizes, grids = ([], []), []
    for rows, columns, grid in parts:
        rows, grid = _with_more_blocks(rows, grid, most[0], 0)
        columns, grid = _with_more_blocks(columns, grid, most[1], 1)
        sizes[0].append(np.diff(rows))
        sizes[1].append(np.diff(columns))
        grids.append(grid)
    return np.stack(sizes[0]), np.stack(sizes[1]), np.stack(grids)
