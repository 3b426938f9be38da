"""Recomputes the ledgers of a trace's spans after spans were added: connections that were never established, or the
recorded command as a span above its root requests.

The walk is that of the analysis (`collector.requests.critical_path`). Its input and its output are columns of numbers,
read anew from the trace; texts of targets are hashed as they are read.

Where connections were added to a long trace (`MOST_WHOLE_ROWS`), only the requests that waited for one get new ledgers.
Queues are learned from many requests, so theirs are made together with those of some others, at least
`SAMPLED_ROOTS`, whose own ledgers stay as they were.

Memory: about 300 bytes for each exchange of which a ledger is made. Columns without a value take none.
"""

from collections.abc import Collection, Mapping

import numpy as np
import polars as pl
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import fields
from numpy.typing import NDArray

from collector.capture_files.records import Columns
from collector.execution import memory
from collector.reporting.failed_connects import with_rows
from collector.reporting.request_rows import RequestRows, RootIds
from collector.requests.critical_path import NONE, UNSEEN, Int64Array, Ledger, Nodes, make_ledger
from collector.requests.endings import as_clients_saw
from collector.requests.linking_columns import STALLS, target_numbers
from collector.requests.openings import bounds_of
from collector.requests.sections import MOST_WHOLE, SECTION_ROWS
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


MOST_WHOLE_ROWS = MOST_WHOLE * SECTION_ROWS
"""As many as are linked whole."""
SAMPLED_ROOTS = 1 << 17
"""Chosen: enough to learn queues of all but rare services from."""


class NewLedgers(Struct, frozen=True):
    """Ledgers that were made anew: of the rows at some places, ascending, and behind them of those that were added."""

    places: Int64Array | None  # None: of all rows
    count: int  # of all rows that are not added
    stretches: Mapping[str, pl.Series]

    def into(self, part: pl.DataFrame, begin: int, names: Collection[str]) -> pl.DataFrame:
        """Successive rows, of which `begin` is the place of the first, with these stretches.

        Arguments: `part`, with the stretches of the stored ledger unless all are made anew.
        """
        if self.places is None:
            return part.with_columns(**{name: self.stretches[name].slice(begin, len(part)) for name in names})
        first, end = np.searchsorted(self.places, (begin, begin + len(part)))
        at, values = self.places[first:end] - begin, {}
        for name in names:
            values[name] = part[name].fill_null(0).to_numpy().copy()
            values[name][at] = self.stretches[name][first:end].to_numpy()
        return part.with_columns(**{name: pl.Series(value) for name, value in values.items()})

    def behind(self, names: Collection[str]) -> dict[str, pl.Series]:
        """These stretches of the rows that were added."""
        first = self.count if self.places is None else len(self.places)
        return {name: self.stretches[name].slice(first) for name in names}


class Command(Struct, frozen=True):
    """The recorded command as a span: the rows of its own requests, and its start and end (trace ns)."""

    is_top: NDArray[np.bool_]
    begin_ns: int
    end_ns: int


def trace_with(
    rows: RequestRows, roots: RootIds, root: int, more: pl.DataFrame | None, silences: pa.Table | None
) -> pl.DataFrame:
    """All columns of the trace of `root`, likewise: of `rows`, whose roots are `roots`, then of `more`.

    The ledgers of others are computed, too, if `more` has a row of this one: requests wait in queues with those of
    others.
    """
    if more is None or root not in more["trace_id"]:
        return rows.below(root)[0]
    more = more.filter(pl.col("trace_id") == root) if _is_long(rows) else more
    some = _enough(rows, roots, more)
    ledger = ledger_with(some, more, silences)
    mine = with_rows(some.columns("trace_id"), more)["trace_id"].to_numpy() == root
    whole = with_rows(rows.below(root)[0], more.filter(pl.col("trace_id") == root))
    return whole.with_columns(
        **{name: series.filter(pl.Series(mine)) for name, series in ledger_series(ledger).items()}
    )


def new_ledgers(rows: RequestRows, roots: RootIds, more: pl.DataFrame, silences: pa.Table | None) -> NewLedgers:
    """The ledgers of `rows`, whose roots are `roots`, with `more`; of a long trace those of requests it concerns."""
    some = _enough(rows, roots, more)
    stretches, count = stretches_of(ledger_with(some, more, silences)), _rows_count(rows)
    if some is rows:
        return NewLedgers(None, count, stretches)
    known = some.columns("trace_id", "exchange_id")
    concerned = np.flatnonzero(known["trace_id"].is_in(more["trace_id"].implode()).to_numpy())
    kept = np.append(concerned, np.arange(len(known), len(known) + len(more)))
    places = _places_among(rows, known["exchange_id"].to_numpy()[concerned])
    return NewLedgers(places, count, {name: series.gather(kept) for name, series in stretches.items()})


def _enough(rows: RequestRows, roots: RootIds, more: pl.DataFrame) -> RequestRows:
    """The rows from which ledgers of what `more` concerns are made: all, or those and some others."""
    if rows.of_requests is None or not _is_long(rows):
        return rows
    others = roots[:: max(1, len(roots) // SAMPLED_ROOTS)]
    return rows.of_requests(np.union1d(more["trace_id"].drop_nulls().to_numpy(), others))


def _places_among(rows: RequestRows, ids: Int64Array) -> Int64Array:
    """The places of exchanges among all rows, ascending."""
    parts, begin = list[Int64Array](), 0
    for part in rows.batches("exchange_id"):
        parts.append(np.flatnonzero(np.isin(part["exchange_id"].to_numpy(), ids)) + begin)
        begin += len(part)
    return np.concatenate(parts)


def _is_long(rows: RequestRows) -> bool:
    return rows.of_requests is not None and _rows_count(rows) > MOST_WHOLE_ROWS


def _rows_count(rows: RequestRows) -> int:
    return sum(len(part) for part in rows.batches("exchange_id"))


def ledger_with(rows: RequestRows, more: pl.DataFrame, silences: pa.Table | None) -> Ledger:
    """The ledger of `rows` followed by `more`."""
    nodes, silent = _all_nodes(rows, more, silences, None)
    ledger = make_ledger(nodes, silent)
    del nodes, silent
    memory.give_back_if_much()
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
    memory.give_back_if_much()
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
