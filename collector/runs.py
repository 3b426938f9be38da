"""Windows over runs, for rows that are sorted by their key: the heads of a flow, the parts of a flow.

A window of Polars (`.over`) looks every key up and gathers its rows, which for many small groups costs more than the
work itself. Where the rows of a group follow one another, a mask of where each run begins is enough, and every window
is a few passes over whole columns. The expressions here take that mask (from `begins`) and belong in the same
`with_columns` or `select` as the columns they name.

Limit: an expression sees runs, not keys; rows must be sorted (or at least grouped) by the key.
"""

import numpy as np
import polars as pl
from numpy.typing import NDArray

Longs = NDArray[np.int64]


def begins(*keys: str) -> pl.Expr:
    """Whether a row's key is another than that of the row before."""
    return pl.any_horizontal(pl.col(key) != pl.col(key).shift() for key in keys).fill_null(value=True)


def previous(value: pl.Expr, begin: pl.Expr) -> pl.Expr:
    """`value` of the row before in the run; null in its first row."""
    return pl.when(~begin).then(value.shift())


def following(value: pl.Expr, begin: pl.Expr) -> pl.Expr:
    """`value` of the next row in the run; null in its last row."""
    return pl.when(~begin.shift(-1, fill_value=True)).then(value.shift(-1))


def place(begin: pl.Expr) -> pl.Expr:
    """The row's place in its run, from 0."""
    row = pl.int_range(pl.len())
    return row - pl.when(begin).then(row).forward_fill()


def counted(mask: pl.Expr, begin: pl.Expr) -> pl.Expr:
    """How many rows of the run so far are in `mask`."""
    ones = mask.cast(pl.Int64)
    total = ones.cum_sum()
    return total - pl.when(begin).then(total - ones).forward_fill()


def carried(value: pl.Expr, begin: pl.Expr) -> pl.Expr:
    """The last known `value` of the run so far."""
    row = pl.int_range(pl.len())
    known = pl.when(value.is_not_null()).then(row).forward_fill()
    return pl.when(known >= pl.when(begin).then(row).forward_fill()).then(value.forward_fill())


def carried_back(value: pl.Expr, begin: pl.Expr) -> pl.Expr:
    """The next known `value` of the rest of the run."""
    last = begin.shift(-1, fill_value=True)
    return carried(value.reverse(), last.reverse()).reverse()


def largest(value: pl.Expr, begin: pl.Expr) -> pl.Expr:
    """The largest `value` of the run so far; null where `value` is.

    Method: numbered by size, values fit below the number of their run, so that one running maximum serves all runs.
    """
    size = pl.len().cast(pl.Int64)
    number = begin.cast(pl.Int64).cum_sum() * size + value.rank("ordinal").cast(pl.Int64) - 1
    return value.sort(nulls_last=True).gather(number.cum_max() % size)


def last_at_most(values: Longs, low: Longs, high: Longs, wanted: Longs) -> Longs:
    """For each query the last place in `low..high` (exclusive) whose value is at most `wanted`; `low - 1` if none is.

    Arguments: `values`, ascending within each `low..high`. Cost: O(queries * log(longest stretch)).
    """
    low, high = low.copy(), high.copy()
    while (left := np.flatnonzero(low < high)).size:
        middle = (low[left] + high[left]) // 2
        fits = values[middle] <= wanted[left]
        low[left[fits]] = middle[fits] + 1
        high[left[~fits]] = middle[~fits]
    return low - 1


def stretches(keys: Longs, wanted: Longs) -> tuple[Longs, Longs]:
    """Where the run of each `wanted` key lies in `keys`: its first place, and that after its last (equal if none is).

    Arguments: `keys`, ascending. Cost: a search for each run of `wanted`, so least where equal ones stand together.
    """
    head = np.flatnonzero(np.append(wanted[:1] == wanted[:1], wanted[1:] != wanted[:-1]))
    length = np.diff(head, append=len(wanted))
    low, high = (np.searchsorted(keys, wanted[head], side) for side in ("left", "right"))
    return np.repeat(low, length), np.repeat(high, length)
