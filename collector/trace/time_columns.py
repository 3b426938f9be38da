"""Converts times of exchanges to arrays for the core: int64 ns without nulls."""

from collections.abc import Iterable

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from collector.trace.arrow import coalesce

Int64Array = NDArray[np.int64]

UNSEEN = np.iinfo(np.int64).min
"""An unknown time."""


def first_times_of_frame(exchanges: pl.DataFrame, *names: str) -> Int64Array:
    """The first of the columns `NAME_trace_ns` that is not null, or `UNSEEN`. Not copied if none is null."""
    seen = exchanges.select(pl.coalesce(*(f"{name}_trace_ns" for name in names)).cast(pl.Int64).fill_null(UNSEEN))
    return np.ascontiguousarray(seen.to_series().to_numpy())


def first_times(exchanges: pa.Table, *names: str) -> Int64Array:
    """The result of `first_times_of_frame` for a table in any number of chunks: a pass of the core, on all cores."""
    return coalesce(exchanges, [f"{name}_trace_ns" for name in names], UNSEEN)


def concat_rows(parts: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """The rows of all parts, with each column in one chunk. Memory: the rows, and one more column."""
    return in_one_chunk(pl.concat(parts, rechunk=False))


def in_one_chunk(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame, which is changed: each column in one chunk, one after the other."""
    for place, name in enumerate(frame.columns):
        frame.replace_column(place, frame[name].rechunk())
    return frame


def text_codes(texts: pl.Series) -> NDArray[np.int32]:
    """Categories as numbers, -1 for null."""
    return texts.to_physical().cast(pl.Int32).fill_null(-1).to_numpy()
