"""How many annotations a trace has by who wrote them, how their requests were found, and where packets disagree.

Cost: a pass over the table `annotations`, and, if it has rows, over the times of all requests.
"""

import polars as pl
import pyarrow as pa
from msgspec import Struct

from collector.annotations.agreement import TIMES
from collector.trace.reading import Trace

_COLUMNS = ("kind", "format", "host", "joined_by", "exchange_id", "duration_ns", "duration_uncertainty_ns")


class AnnotationLine(Struct, frozen=True):
    """The annotations of one format on one host."""

    kind: str
    format: str
    host: str | None
    count: int
    by_id_count: int  # this and the next two: whose request was found so
    by_connection_count: int
    by_time_count: int
    longer_count: int  # of lines, by their duration the server had the request for longer than packets show

    @property
    def joined_count(self) -> int:
        """Of how many the request was found."""
        return self.by_id_count + self.by_connection_count + self.by_time_count

    @property
    def words(self) -> tuple[str, str]:
        """Who wrote them, and what became of them, as reports show it."""
        noun = f"{self.kind if self.kind == 'span' else 'line'}{'s' * (self.count != 1)}"
        ways = {"id": self.by_id_count, "connection": self.by_connection_count, "time": self.by_time_count}
        by = ", ".join(f"{way} {count:,}" for way, count in ways.items() if count)
        found = f"{self.joined_count:,} joined to a request{f' (by {by})' if by else ''}"
        longer = f"; {self.longer_count:,} say longer than packets show" if self.longer_count else ""
        return f"{self.format} on {self.host or 'no known host'}", f"{self.count:,} {noun}, {found}{longer}"


def annotation_lines(trace: Trace) -> tuple[AnnotationLine, ...]:
    """The annotations of a trace, most first; none of a trace that has none."""
    if not trace.rows_count("annotations"):
        return ()
    rows = pl.concat(_frame(part) for part in trace.batches("annotations", _COLUMNS))
    is_joined = pl.col("exchange_id").is_in(rows["exchange_id"].drop_nulls().implode())
    seen = pl.concat(_frame(part).filter(is_joined) for part in trace.batches("exchanges", TIMES))
    begin, end = (pl.col(name) for name in TIMES[2:])
    timed = seen.select("exchange_id", host="server_host", seen_ns=end - begin)
    is_line = pl.col("kind") == "log"
    compared = rows.join(timed, on=["exchange_id", "host"], how="left")
    is_longer = pl.col("duration_ns") - pl.col("duration_uncertainty_ns").fill_null(0) > pl.col("seen_ns")
    counted = compared.group_by("kind", "format", "host").agg(
        count=pl.len(),
        **{f"by_{way}_count": (pl.col("joined_by") == way).sum() for way in ("id", "connection", "time")},
        longer_count=(is_line & is_longer).sum(),
    )
    ordered = counted.sort("count", "format", "host", descending=[True, False, False])
    return tuple(AnnotationLine(**row) for row in ordered.to_dicts())


def _frame(part: pa.Table) -> pl.DataFrame:
    return pl.DataFrame(part).cast({pl.Categorical: pl.String})
