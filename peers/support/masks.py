"""Masks as bands, and the forms that frameworks want them in. A form is given only where it is exactly the mask."""

import numpy as np

FAR = 1 << 60  # stands for an unbounded side


class Mask:
    """Disjoint bands: row in [q0, q1), column in [k0, k1), lo <= column - row <= hi."""

    def __init__(self, rows, columns, bands):
        self.rows, self.columns = rows, columns
        self.bands = np.asarray(bands, dtype=np.int64).reshape(-1, 6)  # q0, q1, k0, k1, lo, hi

    @staticmethod
    def from_json(mask):
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
        """(left, right) of `-right <= row - column <= left`, -1 for an unbounded side; None if this is no window."""
        bounds = self._only_band()
        if bounds is None or self.rows != self.columns:
            return None
        lo, hi = bounds
        if (lo != -FAR and lo > 0) or (hi != FAR and hi < 0):
            return None
        return (-1 if lo == -FAR else -lo, -1 if hi == FAR else hi)

    def documents(self):
        """(boundaries, causal) where each token sees its own document and no other; None otherwise."""
        if self.rows != self.columns or len(self.bands) == 0:
            return None
        bands = self.bands[np.argsort(self.bands[:, 0], kind="stable")]
        q0, q1, k0, k1, lo, hi = bands.T
        boundaries = np.append(q0, self.rows)
        if not ((q0 == k0) & (q1 == k1)).all() or q0[0] != 0 or not (q1 == boundaries[1:]).all():
            return None
        if not (lo == -FAR).all():
            return None
        single = q1 - q0 == 1  # a document of one token is causal and full
        if ((hi == FAR) | single).all():
            return boundaries, False
        if ((hi == 0) | single).all():
            return boundaries, True
        return None

    def row_intervals(self):
        """begin, end [n, rows]: row i sees the columns of [begin[s, i], end[s, i]) for each s, and no others."""
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

    def every_row_sees(self):
        sees = np.zeros(self.rows, dtype=bool)
        for q0, q1, k0, k1, lo, hi in self.bands:
            # Rows of the band that see one of its columns: those with row + lo < k1 and row + hi >= k0.
            sees[max(q0, k0 - hi) : min(q1, k1 - lo)] = True
        return bool(sees.all())

    def rectangles(self):
        """True where no band has a slanted side: the mask is made of blocks."""
        return bool(((self.bands[:, 4] == -FAR) & (self.bands[:, 5] == FAR)).all())

    def blocks(self, size):
        """[row blocks, column blocks] bool: which blocks of size x size are visible; None if blocks do not make the mask."""
        if not self.rectangles() or self.rows % size or self.columns % size:
            return None
        corners = self.bands[:, :4]
        if (corners % size).any():
            return None
        grid = np.zeros((self.rows // size, self.columns // size), dtype=bool)
        for q0, q1, k0, k1 in corners // size:
            grid[q0:q1, k0:k1] = True
        return grid

    def block_boundaries(self):
        """Row and column boundaries and the grid between them, for blocks of any sizes; None if there are slanted sides."""
        if not self.rectangles():
            return None
        rows = np.unique(np.concatenate([self.bands[:, 0], self.bands[:, 1], [0, self.rows]]))
        columns = np.unique(np.concatenate([self.bands[:, 2], self.bands[:, 3], [0, self.columns]]))
        grid = np.zeros((len(rows) - 1, len(columns) - 1), dtype=bool)
        for q0, q1, k0, k1 in self.bands[:, :4]:
            r0, r1 = np.searchsorted(rows, (q0, q1))
            c0, c1 = np.searchsorted(columns, (k0, k1))
            grid[r0:r1, c0:c1] = True
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
