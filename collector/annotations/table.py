"""Records as rows of the table `annotations`: on the trace's timescale, by time.

A record's time is of its host's clock; the table `clocks` says how far that is off. A record of no known host stays as
it was stamped, and its uncertainty is not known.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
import pyarrow as pa
from msgspec import Struct

from collector.annotations.records import Record, phases_text
from collector.clocks.alignment import to_trace_ns
from collector.trace.schema import ANNOTATIONS, conform

_SAME = (
    *("kind", "format", "source", "host", "service", "duration_ns", "duration_uncertainty_ns", "name", "text"),
    *("severity", "transaction_id", "trace_id", "span_id", "parent_span_id"),
)
"""Columns that a record has under the same name."""


class Join(Struct, frozen=True):
    """The request that a record is about, and what shows it: `id`, `connection` or `time`."""

    exchange_id: int
    joined_by: str


def place_records(records: Sequence[Record], clocks: pa.Table) -> tuple[list[int], list[int | None]]:
    """The beginning of each record on the trace's timescale (ns), and by how much it is off at most, if known."""
    hosts = pa.array([record.host for record in records], pa.string())
    stamps = pa.array([record.begin_host_ns for record in records], pa.int64())
    errors = clock_errors(clocks)
    known = [errors.get(record.host or "") for record in records]
    uncertain = [
        None if error is None else record.uncertainty_ns + error for record, error in zip(records, known, strict=True)
    ]
    return to_trace_ns(hosts, stamps, clocks).tolist(), uncertain


def clock_errors(clocks: pa.Table) -> dict[str, int | None]:
    """By how much each host's clock is off at most (ns); None where that is not known, as without alignment."""
    errors: dict[str, int | None] = {}
    for row in clocks.select(["host", "uncertainty_ns"]).to_pylist():
        before, error = errors.get(row["host"], 0), row["uncertainty_ns"]
        errors[row["host"]] = None if before is None or error is None else max(before, error)
    return errors


def annotations_table(records: Sequence[Record], clocks: pa.Table, joins: Mapping[int, Join]) -> pa.Table:
    """The table `annotations`.

    Arguments: `clocks`, the table; `joins`, by place in `records`, of those whose request was found.
    """
    starts, uncertain = place_records(records, clocks)
    columns = {name: [getattr(record, name) for record in records] for name in _SAME}
    found = [joins.get(place) for place in range(len(records))]
    columns |= {
        "start_trace_ns": starts,
        "uncertainty_ns": uncertain,
        "phases": [phases_text(record.phases) for record in records],
        "exchange_id": [join and join.exchange_id for join in found],
        "joined_by": [join and join.joined_by for join in found],
        "side": [record.side or None for record in records],
    }
    types = {name: ANNOTATIONS.field(name).type for name in columns}
    arrays = {
        name: pa.array(values, types[name].value_type if pa.types.is_dictionary(types[name]) else types[name])
        for name, values in columns.items()
    }
    rows = pl.DataFrame(pa.table(arrays)).sort("start_trace_ns", maintain_order=True)
    return with_numbers(rows.to_arrow())


def with_numbers(rows: pa.Table) -> pa.Table:
    """Rows by time as the table `annotations`, numbered in their order."""
    numbers = pl.Series("annotation_id", np.arange(rows.num_rows))
    return conform("annotations", pl.DataFrame(rows).with_columns(numbers).to_arrow())
