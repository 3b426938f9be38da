"""Rows of a table or a query, read when they are asked for."""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import polars as pl
import pyarrow as pa

from collector.sql.database import Database

MOST_SHOWN = 10
"""Rows that a notebook shows."""


class Rows:
    """Rows of a table or a query. They can be narrowed further; nothing is read before a `to_…`, a loop or a `len`.

    What they raise when they are read: `twintap.Error`, with what is wrong and what to do.
    """

    def __init__(self, database: Callable[[], Database], sql: str) -> None:
        self._database, self._sql = database, sql

    @property
    def sql(self) -> str:
        """The query."""
        return self._sql

    def where(self, condition: str) -> "Rows":
        """Those for which a condition in SQL holds: `status >= 500 AND server = 'storage2'`."""
        return self._with(f"SELECT * FROM ({self._sql}) WHERE {condition}")

    def columns(self, *names: str) -> "Rows":
        """Some columns, or expressions of them: `"method"`, `"work_ms / duration_ms AS share"`."""
        return self._with(f"SELECT {', '.join(names)} FROM ({self._sql})")

    def sort(self, by: str) -> "Rows":
        """Ordered: `"duration_ms DESC"`. Those that are null come last."""
        return self._with(f"SELECT * FROM ({self._sql}) ORDER BY {by} NULLS LAST")

    def head(self, count: int) -> "Rows":
        """The first so many."""
        return self._with(f"SELECT * FROM ({self._sql}) LIMIT {int(count)}")

    def to_arrow(self) -> pa.Table:
        """All rows. Times are timestamps in ns."""
        with closing(self._database()) as database, database.run(self._sql) as found:
            return found.read_all()

    def to_polars(self) -> pl.DataFrame:
        """All rows. Times are datetimes in ns."""
        return pl.DataFrame(self.to_arrow())

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, some at a time, for more than fit into memory."""
        with closing(self._database()) as database, database.run(self._sql) as found:
            yield from found

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Each row, as `{column: value}`; times are ns since the epoch."""
        for batch in self.batches():
            times = [pa.types.is_timestamp(field.type) for field in batch.schema]
            columns = [
                column.cast(pa.timestamp("ns")).cast(pa.int64()) if is_time else column
                for column, is_time in zip(batch.columns, times, strict=True)
            ]
            names = batch.schema.names
            for values in zip(*(column.to_pylist() for column in columns), strict=True):
                yield dict(zip(names, values, strict=True))

    def __len__(self) -> int:
        """How many they are."""
        (count,) = Rows(self._database, f"SELECT count(*) AS n FROM ({self._sql})").to_arrow()["n"].to_pylist()
        return int(count)

    def _with(self, sql: str) -> "Rows":
        return Rows(self._database, sql)

    def _repr_html_(self) -> str:
        return self.head(MOST_SHOWN).to_polars()._repr_html_()

    def __repr__(self) -> str:
        return f"Rows({self._sql!r})"
