"""Recomputes the ledgers of a trace's spans after spans were added: connections that were never established, or the
recorded command as a span above its root requests.

The walk is that of the analysis (`collector.requests.critical_path`). Its input and its output are columns of numbers,
read anew from the trace; texts of targets are hashed as they are read.

Memory: about 500 bytes for each exchange, as much as linking takes, so what could be analysed can be reported.
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
from collector.requests.spans import ledger_series, make_nodes, places
from collector.trace.request_times import was_opened_for
from collector.trace.schema import EXCHANGES

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
    return rows.with_columns(**{name: series.head(len(rows)) for name, series in ledger_series(ledger).items()})


def _all_nodes(
    source: RequestRows, more: pl.DataFrame | None, silences: pa.Table | None, command: Command | None
) -> tuple[Nodes, Columns]:
    targets = source.numbers_of("target", target_numbers)
    rows = with_rows(source.columns(*_NODE_COLUMNS), more)
    targets = np.append(targets, np.zeros(len(rows) - len(targets), targets.dtype))
    silent = _silences_of(rows, silences)
    parent, depth = places(rows["exchange_id"], rows["parent_span_id"]), _depth(rows)
    if command is not None:
        parent, depth = np.where(command.is_top, len(rows), parent), depth + 1
    nodes = _nodes(rows, parent, depth, targets)
    del rows, parent, depth, targets
    memory.give_back()
    if command is None:
        return nodes, silent
    columns = {field.name: getattr(nodes, field.name) for field in fields(Nodes)}
    del nodes
    return _under_command(columns, command), silent


def _depth(rows: pl.DataFrame) -> Int64Array:
    return rows["depth"].cast(pl.Int64).to_numpy()


def _nodes(rows: pl.DataFrame, parent: Int64Array, depth: Int64Array, targets: NDArray[np.uint64]) -> Nodes:
    names = pl.col("service", "ending", "method", "protocol").cast(pl.Categorical)
    times = as_clients_saw(rows.select(names, "status", pl.col("^.*_trace_ns$", *STALLS).cast(pl.Int64)).to_arrow())
    opened = rows.select(was_opened_for())
    return make_nodes(times, parent, depth, bounds_of(times, opened.to_series().to_numpy()), targets)


def _under_command(columns: dict[str, Int64Array], command: Command) -> Nodes:
    """The forest with the command behind all others, and above its own requests.

    Arguments: `columns` of the forest, which are taken out one by one, so that each is freed when its copy is made.
    """
    begin, end = command.begin_ns, command.end_ns
    own = dict.fromkeys((field.name for field in fields(Nodes)), UNSEEN)
    own |= {"parent": NONE, "depth": 0, "connect_stall": 0, "request_stall": 0, "response_stall": 0}
    own |= dict.fromkeys(("start", "sent", "last_sent", "head_arrived", "arrived"), begin)
    own |= {"answered": end, "ended": end}
    return Nodes(**{name: np.append(columns.pop(name), value) for name, value in own.items()})


def _silences_of(rows: pl.DataFrame, silences: pa.Table | None) -> Columns:
    if silences is None:
        return no_silences()
    return silences_by_row(silences, rows.select("exchange_id", *SUM_COLUMNS).to_arrow())
