"""Whether a query sees a key, looked up in tables. Uses operators only, so frameworks can compile it and NumPy can run it on arrays."""


def by_intervals(begin, end, slots, line, position):
    """Whether `position` lies in an interval of `line`: a key in a row's intervals, or a row in a key's. The tables are [slots, lines]."""
    seen = (position >= begin[0, line]) & (position < end[0, line])
    for slot in range(1, slots):
        seen = seen | ((position >= begin[slot, line]) & (position < end[slot, line]))
    return seen


def by_blocks(grid, row_owner, column_owner, head, q, k):
    """Whether the pair's block is visible: grid[head, row block, column block]. An owner is a token's block."""
    return grid[head, row_owner[head, q], column_owner[head, k]] != 0
