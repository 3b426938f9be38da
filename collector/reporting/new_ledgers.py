"""Recomputes the ledgers of a trace's spans after spans were added: connections that were never established, or the
recorded command as a span above its root requests.

The walk is that of the analysis (`collector.requests.critical_path`). Its input and its output are columns of numbers,
read anew from the trace; texts of targets are hashed as they are read.

Memory: about 300 bytes for each exchange, so what could be analysed can be reported. Columns without a value take none.
"""

import numpy as np
import polars as pl
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import fields
from numpy.typing import NDArray

from collector.capture_files.records import Columns
from collector.execution import memory
from collector.reporting.failed_connects import with_rows
from collector.reporting.request_rows import RequestRows
from collector.requests.critical_path import NONE, UNSEEN, Int64Array, Ledger, Nodes, make_ledger
from collector.requests.endings import as_clients_saw
from collector.requests.linking_columns import STALLS, target_numbers
from collector.requests.openings import bounds_of
from collector.requests.silences import SUM_COLUMNS, no_silences, silences_by_row
from collector.requests.spans import LEDGER_COLUMNS, ledger_series, make_nodes, places
from collector.trace.arrow import shared_constant, sharing_nulls
from collector.trace.request_times import was_opened_for
from collector.trace.schema import EXCHANGES
from collector.trace.time_columns import concat_rows

_TIMES = tuple(name for name in EXCHANGES.names if name.endswith("_trace_ns"))
_NODE_COLUMNS = (
    *("exchange_id", "parent_span_id", "depth", "start_trace_ns", "service", "ending", "method", "status"),
    "protocol",
    *(*_TIMES, *STALLS, *SUM_COLUMNS),
)
"""Columns of all rows from which ledgers are computed, beside `target`."""


class Command(Struct, frozen=True):
    """The recorded command as a span: the rows of its own requests, and its start and end (trace ns)."""

    is_top: NDArray[np.bool_]
    begin_ns: int
    end_ns: int


def trace_with(rows: RequestRows, root: int, more: pl.DataFrame | None, silences: pa.Table | None) -> pl.DataFrame:
    """All columns of the trace of `root`, likewise: of `rows`, then of `more`.

    The ledgers of all traces are computed if `more` has a row of this one: requests wait in queues with those of
    others.
    """
    if more is None or root not in more["trace_id"]:
        return rows.below(root)[0]
    ledger = ledger_with(rows, more, silences)
    mine = with_rows(rows.columns("trace_id"), more)["trace_id"].to_numpy() == root
    whole = with_rows(rows.below(root)[0], more.filter(pl.col("trace_id") == root))
    return whole.with_columns(
        **{name: series.filter(pl.Series(mine)) for name, series in ledger_series(ledger).items()}
    )


def ledger_with(rows: RequestRows, more: pl.DataFrame, silences: pa.Table | None) -> Ledger:
    """The ledger of `rows` followed by `more`."""
    nodes, silent = _all_nodes(rows, more, silences, None)
    ledger = make_ledger(nodes, silent)
    del nodes, silent
    memory.give_back()
    return ledger


def ledger_under_command(
    rows: RequestRows, more: pl.DataFrame | None, silences: pa.Table | None, command: Command
) -> Ledger:
    """The ledger of `rows`, of `more` behind them, and of the command, which is last; spans that are not below it have
    zeros. With the windows."""
    nodes, silent = _all_nodes(rows, more, silences, command)
    return make_ledger(nodes, silent, with_windows=True)


def with_ledger(rows: pl.DataFrame, ledger: Ledger) -> pl.DataFrame:
    """`rows` with the ledger's stretches; those behind the last row are omitted."""
    return rows.with_columns(**{name: series.head(len(rows)) for name, series in stretches_of(ledger).items()})


def stretches_of(ledger: Ledger) -> dict[str, pl.Series]:
    """The ledger's stretches by column name; nothing is copied."""
    return {name: pl.Series(pa.array(getattr(ledger, name))) for name in LEDGER_COLUMNS}


def _all_nodes(
    source: RequestRows, more: pl.DataFrame | None, silences: pa.Table | None, command: Command | None
) -> tuple[Nodes, Columns]:
    targets = source.numbers_of("target", target_numbers)
    own, times = _read_rows(source, more)
    targets = np.append(targets, np.zeros(len(own) - len(targets), targets.dtype))
    silent = _silences_of(own["exchange_id"], times, silences)
    parent, depth = places(own["exchange_id"], own["parent_span_id"]), own["depth"].cast(pl.Int64).to_numpy()
    if command is not None:
        parent, depth = np.where(command.is_top, len(own), parent), depth + 1
    opened = own["opened"].to_numpy()
    del own
    times = as_clients_saw(times)
    nodes = make_nodes(times, parent, depth, bounds_of(times, opened), targets)
    del times, parent, depth, targets
    memory.give_back()
    if command is None:
        return nodes, silent
    columns = {field.name: getattr(nodes, field.name) for field in fields(Nodes)}
    del nodes
    return _under_command(columns, command), silent


def _read_rows(source: RequestRows, more: pl.DataFrame | None) -> tuple[pl.DataFrame, pa.Table]:
    """Of all rows `exchange_id, parent_span_id, depth` and whether the connection was `opened` for it; and the table of
    all else, in chunks, in which columns without a value take no memory."""
    own, tables = list[pl.DataFrame](), list[pa.Table]()

    def add(rows: pl.DataFrame) -> None:
        own.append(rows.select("exchange_id", "parent_span_id", "depth", opened=was_opened_for()))
        names = pl.col("service", "ending", "method", "protocol").cast(pl.Categorical)
        numbers = pl.col("^.*_trace_ns$", *STALLS, *SUM_COLUMNS).cast(pl.Int64)
        tables.append(sharing_nulls(rows.select(names, "status", numbers).to_arrow()))

    rows = pl.DataFrame()
    for rows in source.batches(*_NODE_COLUMNS):
        add(rows)
    if more is not None:
        add(with_rows(rows.clear(), more))
    return concat_rows(own), pa.concat_tables(tables)


def _under_command(columns: dict[str, Int64Array], command: Command) -> Nodes:
    """The forest with the command behind all others, and above its own requests.

    Arguments: `columns` of the forest, which are taken out one by one, so that each is freed when its copy is made.
    """
    begin, end = command.begin_ns, command.end_ns
    own = dict.fromkeys((field.name for field in fields(Nodes)), UNSEEN)
    own |= {"parent": NONE, "depth": 0, "connect_stall": 0, "request_stall": 0, "response_stall": 0}
    own |= dict.fromkeys(("start", "sent", "last_sent", "head_arrived", "arrived"), begin)
    own |= {"answered": end, "ended": end}
    return Nodes(**{name: _with_last(columns.pop(name), value) for name, value in own.items()})


def _with_last(column: Int64Array, value: int) -> Int64Array:
    """The column with one more value; one that shares its memory with all of this value does so again."""
    if np.may_share_memory(column, shared_constant(value, len(column))):
        return shared_constant(value, len(column) + 1)
    return np.append(column, value)


def _silences_of(ids: pl.Series, sums: pa.Table, silences: pa.Table | None) -> Columns:
    if silences is None:
        return no_silences()
    return silences_by_row(silences, sums.select(SUM_COLUMNS).append_column("exchange_id", ids.to_arrow()))
