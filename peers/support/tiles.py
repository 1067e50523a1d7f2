"""The full and partial tiles of a mask, and lists of them, for kernels that work on blocks."""

import numpy as np


def edges(tokens, tile):
    """The begins of all tiles, and the end of the last one."""
    return np.append(np.arange(0, tokens, tile), tokens)


def _summed(boundaries, values, borders):
    """[tiles, ...]: the sum over the tokens of each tile; `values` holds one value per block, which applies to each of its tokens."""
    up_to = np.zeros((len(boundaries), values.shape[1]), dtype=np.int64)
    np.cumsum(values * np.diff(boundaries)[:, None], axis=0, out=up_to[1:])
    block = np.minimum(np.searchsorted(boundaries, borders, side="right"), len(values)) - 1
    return np.diff(up_to[block] + values[block] * (borders - boundaries[block])[:, None], axis=0)


def _graded(seen, row_borders, column_borders):
    """(partial, full), from the number of visible pairs in each tile."""
    full = seen == np.outer(np.diff(row_borders), np.diff(column_borders))
    return (seen > 0) & ~full, full


def of_blocks(rows, columns, grid, tile):
    """(partial, full) [row tiles, column tiles] of blocks between these boundaries, in tiles of [rows, columns]."""
    borders = edges(rows[-1], tile[0]), edges(columns[-1], tile[1])
    return _graded(_summed(columns, _summed(rows, grid, borders[0]).T, borders[1]).T, *borders)


def of_intervals(begin, end, columns, tile):
    """(partial, full) [row tiles, column tiles] of rows that see the columns [begin[s, i], end[s, i]) for each s."""
    borders = edges(begin.shape[1], tile[0]), edges(columns, tile[1])
    shape = len(borders[0]) - 1, len(borders[1])
    row = np.broadcast_to(np.arange(begin.shape[1]) // tile[0], begin.shape)
    some = begin < end
    row, begin, end = row[some], begin[some], end[some]
    add = lambda column, what: np.bincount(row * shape[1] + column, what, shape[0] * shape[1]).reshape(shape)
    # The visible columns of each tile. `whole` counts whole tiles from an interval's first tile up to the one before its last. The
    # columns before its begin in the first tile are subtracted, and those before its end in the last tile are added.
    whole = np.cumsum(add(begin // tile[1], None) - add(end // tile[1], None), axis=1) * tile[1]
    seen = whole - add(begin // tile[1], begin % tile[1]) + add(end // tile[1], end % tile[1])
    return _graded(seen[:, :-1], *borders)


def listed(grids):
    """(number [heads, rows], indices [heads, rows, most]) of the true tiles of each row, ascending."""
    grids = np.asarray(grids)
    number = grids.sum(-1, dtype=np.int32)
    most = max(1, int(number.max(initial=0)))
    return number, np.argsort(~grids, axis=-1, kind="stable")[..., :most].astype(np.int32)


def most_runs(grid):
    """The largest number of runs of true entries in any row."""
    return int((np.diff(grid.astype(np.int8), axis=1, prepend=0) > 0).sum(1).max())


def owners(parts):
    """From (row boundaries, column boundaries, grid) of each mask: (grids [masks, row blocks, column blocks], the row block of each
    row, the column block of each column [masks, tokens])."""
    shape = np.max([grid.shape for _, _, grid in parts], axis=0)
    grids = np.stack([np.pad(grid, [(0, n - m) for n, m in zip(shape, grid.shape)]) for _, _, grid in parts])
    of_axis = lambda axis: np.stack([np.repeat(np.arange(len(part[axis]) - 1), np.diff(part[axis])) for part in parts])
    return grids, of_axis(0), of_axis(1)
