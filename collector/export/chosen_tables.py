"""The tables of a trace, or what some requests with their calls are in them.

| table | rows that are left |
|---|---|
| `spans`, `exchanges`, `silences`, `hops`, `annotations` | those of the requests; packets as in the viewer |
| `events` | packets of those hops |
| `connections`, `quality`, `messages` | those of their connections, which other requests may have used, too |
| `streams` | none: a stream is no request |
| `clocks`, `findings`, `samples` | all: they are of hosts and of the trace |

Memory: a group of rows, and 40 bytes for each packet of the requests.
"""

from collections.abc import Iterator

import polars as pl
import pyarrow as pa
from msgspec import Struct

from collector.reporting.request_rows import RootIds
from collector.trace.reading import Trace
from collector.trace.schema import TABLES

OF_EXCHANGES = ("exchanges", "silences", "hops", "annotations")
OF_CONNECTIONS = ("connections", "quality", "messages")
NOT_OF_REQUESTS = ("streams",)


class ChosenRows(Struct, frozen=True):
    """Which rows are of some requests."""

    traces: pl.Series
    exchanges: pl.Series
    connections: pl.Series
    packets: pl.DataFrame  # host and frame

    @classmethod
    def of(cls, trace: Trace, only: RootIds) -> "ChosenRows":
        """Those of the requests with these `trace_id`s."""
        traces = pl.Series(only, dtype=pl.Int64)
        spans = pl.DataFrame(trace.read("spans", ["trace_id", "span_id"]))
        exchanges = spans.filter(pl.col("trace_id").is_in(traces.implode()))["span_id"]
        asked = pl.DataFrame(trace.read("exchanges", ["exchange_id", "connection_id"]))
        connections = asked.filter(pl.col("exchange_id").is_in(exchanges.implode()))["connection_id"].unique()
        return cls(traces, exchanges, connections, _packets_of(trace, exchanges))

    def rows(self, name: str, part: pa.Table) -> pa.Table:
        """The rows of a part of a table that are left."""
        if name == "spans":
            keep = _is_among(part, "trace_id", self.traces)
        elif name in OF_EXCHANGES:
            keep = _is_among(part, "exchange_id", self.exchanges)
        elif name in OF_CONNECTIONS:
            keep = _is_among(part, "connection_id", self.connections)
        elif name in NOT_OF_REQUESTS:
            return part.slice(0, 0)
        elif name == "events":
            packets = _frame(part.select(["host", "frame"])).join(
                self.packets.with_columns(keep=True), on=["host", "frame"], how="left", maintain_order="left"
            )
            keep = packets["keep"].fill_null(value=False)
        else:
            return part
        return part.filter(keep.to_arrow())


def table_parts(trace: Trace, name: str, chosen: ChosenRows | None) -> Iterator[pa.Table]:
    """The rows of a table, or those that are chosen, a group at a time."""
    for part in trace.batches(name, TABLES[name].names):
        yield part if chosen is None else chosen.rows(name, part)


def _packets_of(trace: Trace, exchanges: pl.Series) -> pl.DataFrame:
    columns = ["exchange_id", *(f"{end}_{what}" for end in ("send", "receive") for what in ("host", "frame"))]
    ends = [pl.DataFrame(schema={"host": pl.String, "frame": pl.UInt32})]
    for part in trace.batches("hops", columns):
        hops = _frame(part.filter(_is_among(part, "exchange_id", exchanges).to_arrow()))
        for end in ("send", "receive"):
            ends.append(hops.select(host=f"{end}_host", frame=f"{end}_frame").drop_nulls())
    return pl.concat(ends).unique()


def _is_among(part: pa.Table, column: str, values: pl.Series) -> pl.Series:
    return pl.Series(part.column(column)).is_in(values.implode()).fill_null(value=False)


def _frame(part: pa.Table) -> pl.DataFrame:
    return pl.DataFrame(part).with_columns(pl.col(pl.Categorical).cast(pl.String))
