"""Whether a query sees a key, from tables, in operators alone: of one pair while a framework compiles it, or of NumPy's arrays."""


def by_intervals(begin, end, slots, line, position):
    """Whether `position` lies in one of the intervals of `line`: keys and a row, or rows and a key. The tables are [slots, lines]."""
    seen = (position >= begin[0, line]) & (position < end[0, line])
    for slot in range(1, slots):
        seen = seen | ((position >= begin[slot, line]) & (position < end[slot, line]))
    return seen


def by_blocks(grid, row_owner, column_owner, head, q, k):
    """Whether the block that holds the pair is visible: grid[head, row block, column block]; an owner is a token's block."""
    return grid[head, row_owner[head, q], column_owner[head, k]] != 0
