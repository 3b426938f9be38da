"""Reads a long table part by part, so that a query over all rows copies those of one part at a time.

`DistinctRows` numbers rows of texts, alike in all parts: a column of numbers takes 4 bytes a row, one of texts 16 and
their characters.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from collector import _core
from collector.trace.table_store import ROW_GROUP_ROWS


def parts_of(rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """All rows in their order, some at a time; at least one part, which may be empty."""
    for begin in range(0, max(1, len(rows)), ROW_GROUP_ROWS):
        yield rows.slice(begin, ROW_GROUP_ROWS)


def slices_of(count: int) -> Iterator[slice]:
    """Slices of as many rows as `parts_of` gives."""
    for begin in range(0, count, ROW_GROUP_ROWS):
        yield slice(begin, min(begin + ROW_GROUP_ROWS, count))


class DistinctRows:
    """Numbers, from 0 on, for the rows of parts of a table with columns of texts and of booleans: equal rows have the
    same number. Memory: what the distinct rows take."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._schema = pl.Schema()

    def numbers(self, part: pl.DataFrame) -> NDArray[np.int32]:
        """The number of each row of a part; all parts have the same columns."""
        self._schema = part.schema
        own, first = _core.row_groups([_codes(column) for column in part])
        known = (self._numbers.setdefault(row, len(self._numbers)) for row in part[first].iter_rows())
        return np.fromiter(known, np.int32, len(first))[own]

    def frame(self) -> pl.DataFrame:
        """The distinct rows, in the order of their numbers."""
        return pl.DataFrame(list(self._numbers), self._schema, orient="row")

    def category(self, numbers: NDArray[np.int32]) -> pl.Series:
        """The texts of rows with these numbers, as categories; of the only column."""
        return self.frame().to_series().cast(pl.Categorical).gather(numbers)


def _codes(column: pl.Series) -> NDArray[np.int32]:
    numbers = column.cast(pl.Categorical).to_physical() if column.dtype == pl.String else column.to_physical()
    return np.ascontiguousarray(numbers.cast(pl.Int32).fill_null(-1).to_numpy())
