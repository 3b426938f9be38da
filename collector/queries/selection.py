"""Writes a selection as files for other tools: the rows of `hops` as CSV or Parquet, the packets themselves as pcapng,
read from the captures of the trace, or the requests in the formats of `tracer export`.

A selection is a request or an interval. The files have the types of the tables: times are trace times, int64 ns; a
packet's timestamp in pcapng is its own host's.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
from msgspec import Struct
from numpy.typing import NDArray

from collector.export import har, jaeger, mermaid, otlp, perfetto, shiviz
from collector.export.csv import without_dictionaries
from collector.queries.trace_view import TraceView
from collector.reporting.request_rows import RootIds
from collector.trace.reading import Trace
from collector.trace.schema import HOPS
from tracer.errors import InputError

MOST_ROWS = 5_000_000
"""At most so many rows are exported."""
MOST_REQUESTS = 20_000
"""At most so many requests are; about 3 s."""
REQUEST_WRITERS: dict[str, Callable[[Trace, Path, RootIds | None], object]] = {
    "otlp": otlp.write,
    "jaeger": jaeger.write,
    "har": har.write,
    "perfetto": perfetto.write,
    "mermaid": mermaid.write,
    "shiviz": shiviz.write,
}
"""What writes requests, by the format's name."""


class Selection(Struct, frozen=True):
    """A request by its number, or the hops in [from_ns, to_ns) and the requests that overlap it."""

    request: int | None = None
    from_ns: int = 0
    to_ns: int = 0


def write_csv(trace: TraceView, selection: Selection, place: Path) -> None:
    """Write the selection's hops as CSV with a header line; null is an empty field.

    Raises: `InputError` if they are too many, or the trace was made anew meanwhile.
    """
    rows = rows_of(trace, selection)
    schema = without_dictionaries(HOPS.empty_table()).schema

    def write() -> None:
        with pyarrow.csv.CSVWriter(place, schema) as writer:
            for table in trace.stored.chosen_rows("hops", HOPS.names, rows):
                writer.write_table(without_dictionaries(table).cast(schema))

    trace.read_unchanged(write)


def write_parquet(trace: TraceView, selection: Selection, place: Path) -> None:
    """Write the selection's hops as Parquet, in the types of the table `hops`.

    Raises: as `write_csv`.
    """
    rows = rows_of(trace, selection)

    def write() -> None:
        with pq.ParquetWriter(place, HOPS, compression="zstd") as writer:
            for table in trace.stored.chosen_rows("hops", HOPS.names, rows):
                writer.write_table(table.cast(HOPS))

    trace.read_unchanged(write)


def write_requests(trace: TraceView, selection: Selection, place: Path, form: str) -> None:
    """Write the selection's requests with their calls, in a format of `REQUEST_WRITERS`.

    Raises: `InputError` if there are none or too many, or the trace was made anew meanwhile.
    """
    if selection.request is not None:
        numbers = np.array([selection.request])
    else:
        numbers = trace.requests_between(selection.from_ns, selection.to_ns)
    if not len(numbers):
        raise InputError("there is no request in view", "zoom out, or take the whole trace with: tracer export")
    if len(numbers) > MOST_REQUESTS:
        what = f"{len(numbers):,} requests are more than the {MOST_REQUESTS:,} that are handed out at once"
        raise InputError(what, "zoom in, select one, or take the whole trace with: tracer export")
    roots = trace.trace_ids(numbers)
    trace.read_unchanged(lambda: REQUEST_WRITERS[form](trace.stored, place, roots))


def rows_of(trace: TraceView, selection: Selection) -> NDArray[np.int64]:
    """The rows of the selection's hops in their table, ascending.

    Raises: `InputError` if there are too many.
    """
    if selection.request is not None:
        rows = trace.rows_of_request(selection.request)
    else:
        rows = trace.rows_between(selection.from_ns, max(selection.from_ns, selection.to_ns))
    if len(rows) > MOST_ROWS:
        what = f"{len(rows):,} packets are more than the {MOST_ROWS:,} that are handed out at once"
        raise InputError(what, "zoom in, select a request, or take the whole trace with: tracer export")
    return rows
