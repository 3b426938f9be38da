"""Requests as rows: the tables `exchanges` and `spans` of a trace joined, read column by column or for chosen requests.

A row of all columns takes 600 bytes, so a few million rows, and each copy that a filter makes, take gigabytes. So
queries over all requests read only the columns that they need, and whole rows are read only for a few requests.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Self

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from collector import _core
from collector.reporting.peers import NO_PEERS, peers_of_connections, with_peers
from collector.trace.reading import Trace
from collector.trace.schema import EXCHANGES, ID_STRIDE_BITS, SPANS, TABLES

RootIds = NDArray[np.int64]
"""The `trace_id`s of some requests."""
TIMES = tuple(name for name in (*EXCHANGES.names, *SPANS.names) if name.endswith("_trace_ns"))
AT_ONCE = 4
"""Number of time columns that are compared at once."""
DURATION = "duration_ns"
NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class RequestRows:
    """The spans of a trace, each with its exchange, in the order of the table `spans`."""

    read: Callable[[str, Sequence[str]], pa.Table]  # from a table's name and columns
    read_some: Callable[
        [str, Sequence[str], NDArray[np.int64]], pa.Table
    ]  # from a table's name, columns and row numbers, ascending
    among: "RequestRows | None" = None  # all rows of the trace, where these are only some
    read_peers: Callable[[], pl.DataFrame] = lambda: NO_PEERS  # as `peers_of_connections`
    read_parts: Callable[[str, Sequence[str]], Iterator[pa.Table]] | None = None  # as `read`, a group of rows at a time
    of_requests: Callable[[RootIds], "RequestRows"] | None = None  # the rows of some requests, and of calls below them
    _below: dict[int, pl.DataFrame] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of_trace(cls, trace: Trace, only: RootIds | None = None) -> Self:
        """The rows of a trace, read again at each use (`below` keeps some), which then may raise `InputError`.

        Arguments: `only`, the `trace_id`s of some requests: those and their calls are all rows.
        """

        def read_some(name: str, columns: Sequence[str], rows: NDArray[np.int64]) -> pa.Table:
            none = TABLES[name].empty_table().select(list(columns))
            return pa.concat_tables([none, *trace.chosen_rows(name, columns, rows)])

        read_peers, of_requests = cache(lambda: peers_of_connections(trace)), partial(cls.of_trace, trace)
        if only is None:
            return cls(trace.read, read_some, None, read_peers, trace.batches, of_requests)
        places = _places_of_requests(trace, only)
        return cls(
            lambda name, columns: trace.read(name, columns).take(pa.array(places[name])),
            lambda name, columns, rows: read_some(name, columns, places[name][rows]),
            cls(trace.read, read_some, None, read_peers, trace.batches),
            read_peers,
            lambda name, columns: trace.chosen_rows(name, columns, places[name]),
            of_requests,
        )

    @classmethod
    def of_tables(cls, spans: pa.Table, exchanges: pa.Table) -> Self:
        """The rows of tables in memory."""
        tables = {"spans": spans, "exchanges": exchanges}
        return cls(
            lambda name, columns: tables[name].select(columns),
            lambda name, columns, rows: tables[name].select(columns).take(pa.array(rows)),
        )

    def columns(self, *names: str) -> pl.DataFrame:
        """Some columns of all rows. Text columns are categories; `duration_ns` of a root is the sum of its trace's
        ledger."""
        wanted = dict.fromkeys(names)
        more = ("trace_id", "depth", "critical_ns") if DURATION in wanted else ()
        right = _frame(self.read("spans", [name for name in SPANS.names if {name} & {"span_id", *wanted, *more}]))
        ours = [name for name in EXCHANGES.names if name in wanted or name == "exchange_id"]
        rows = _side_by_side(_frame(self.read("exchanges", ours)), right)
        return (with_durations(rows) if more else rows).select(*wanted)

    def batches(self, *names: str) -> Iterator[pl.DataFrame]:
        """Some columns of all rows, as `columns`, a group of rows at a time, at least one; without `duration_ns`."""
        wanted, parts, rows = list(dict.fromkeys(names)), self.read_parts, None
        if parts is None:
            yield self.columns(*wanted)
            return
        of_exchanges = [name for name in EXCHANGES.names if name in wanted and name != "exchange_id"]
        exchanges = parts("exchanges", [*dict.fromkeys(["exchange_id", "is_stream", *of_exchanges])])
        waiting = _ExchangesInTurn(map(_frame, exchanges))
        for part in parts("spans", [name for name in SPANS.names if name in wanted or name == "span_id"]):
            if not len(part):
                continue
            spans = _frame(part)
            if of_exchanges:
                rows = _side_by_side(waiting.of(spans["span_id"]), spans)
            else:
                rows = spans.rename({"span_id": "exchange_id"})
            yield rows.select(wanted)
        if rows is None:
            yield self.columns(*wanted)

    def earliest(self) -> pl.Series:
        """The earliest time in each row; null without any."""
        return self._over_times(pl.min_horizontal)

    def latest(self) -> pl.Series:
        """The latest time in each row; null without any."""
        return self._over_times(pl.max_horizontal)

    def starts(self) -> pl.Series:
        """When each row began: `start_trace_ns`, else its earliest time; null without any."""
        return self._with_others("start_trace_ns", self.earliest)

    def ends(self) -> pl.Series:
        """When each row ended: `end_trace_ns`, else its latest time; null without any."""
        return self._with_others("end_trace_ns", self.latest)

    def _with_others(self, column: str, others: Callable[[], pl.Series]) -> pl.Series:
        """A column; where it is null, others. All times of all rows are read only if some are null, as few ever are."""
        known = self.columns(column).to_series()
        return pl.select(pl.coalesce(known, others())).to_series() if known.null_count() else known

    def _over_times(self, of: Callable[..., pl.Expr]) -> pl.Series:
        found = self.columns(*TIMES[:AT_ONCE]).select(of(pl.all())).to_series()
        for at in range(AT_ONCE, len(TIMES), AT_ONCE):
            times = self.columns(*TIMES[at : at + AT_ONCE]).with_columns(found.alias("found"))
            found = times.select(of(pl.all())).to_series()
        return found

    def in_order(
        self, order: NDArray[np.integer[Any]], at_once: int, columns: Collection[str]
    ) -> Iterator[pl.DataFrame]:
        """Some columns of both tables, `exchange_id`, and `PEERS` if there are names, of chosen rows, by their places
        and in their order, at most `at_once` rows at a time; texts as strings.

        Cost: the row groups that hold them, so little where the order is nearly that of the rows.
        """
        exchange = self._places_of_exchanges()
        own = {"exchange_id", "connection_id", *columns}
        of_exchanges = [name for name in EXCHANGES.names if name in own]
        of_spans = [name for name in SPANS.names if name == "span_id" or name in columns]
        for begin in range(0, max(1, len(order)), at_once):
            chosen = order[begin : begin + at_once]
            places = np.sort(chosen)
            exchanges = self.read_some("exchanges", of_exchanges, np.sort(exchange[places]))
            spans = self.read_some("spans", of_spans, places)
            rows = _side_by_side(_with_texts(exchanges), _with_texts(spans))
            peers = self.read_peers()
            rows = rows if peers.is_empty() else with_peers(rows, peers)
            yield rows if np.array_equal(places, chosen) else rows[np.searchsorted(places, chosen)]

    def numbers_of(self, column: str, number: Callable[[pa.ChunkedArray], NDArray[np.uint64]]) -> NDArray[np.uint64]:
        """What `number` makes of a column of `exchanges`, for each row; no text of it is kept."""
        made = number(self.read("exchanges", [column])[column])
        return made[self._places_of_exchanges()]

    def _places_of_exchanges(self) -> NDArray[np.int64]:
        """The place in the table `exchanges` of each row's exchange."""
        ids, own = (
            _frame(self.read(table, [column]))[column].to_numpy()
            for table, column in (("exchanges", "exchange_id"), ("spans", "span_id"))
        )
        return _core.places(ids, [own], ID_STRIDE_BITS)[0]

    def below(self, *roots: int) -> list[pl.DataFrame]:
        """For each of these root requests all columns of it and of the spans below it; texts as strings.
        They are kept: a report shows the slowest in several ways, and reading them takes whole row groups."""
        lacking = [root for root in roots if root not in self._below]
        if lacking:
            below = self._places("spans", "trace_id", pl.Series(lacking, dtype=pl.Int64))
            spans = self.read_some("spans", SPANS.names, below)
            ids = pl.Series(spans["span_id"].to_numpy(), dtype=pl.Int64)
            places = self._places("exchanges", "exchange_id", ids)
            rows = self._whole_rows(spans, self.read_some("exchanges", EXCHANGES.names, places))
            self._below.update({root: rows.filter(pl.col("trace_id") == root) for root in lacking})
        return [self._below[root] for root in roots]

    def _places(self, table: str, column: str, values: pl.Series) -> NDArray[np.int64]:
        """The rows of a table whose `column` has one of `values`."""
        return np.flatnonzero(_frame(self.read(table, [column]))[column].is_in(values.implode()).to_numpy())

    def whole(self) -> pl.DataFrame:
        """All columns of all rows; texts as strings. Needed to recompute the ledgers of all spans."""
        return self._whole_rows(self.read("spans", SPANS.names), self.read("exchanges", EXCHANGES.names))

    def _whole_rows(self, spans: pa.Table, exchanges: pa.Table) -> pl.DataFrame:
        """All columns, and `PEERS`."""
        return with_peers(join_spans(spans, exchanges), self.read_peers())


class _ExchangesInTurn:
    """Exchanges that come a group at a time, handed out by their ids; groups of spans may end at other rows."""

    def __init__(self, groups: Iterator[pl.DataFrame]) -> None:
        self._groups = (group.filter(~pl.col("is_stream").fill_null(value=False)) for group in groups)
        self._rows = pl.DataFrame()

    def of(self, ids: pl.Series) -> pl.DataFrame:
        """The exchanges with these ids, which are not handed out again. Cost: little where they come in this order."""
        while len(self._rows) < len(ids) and self._has_more():
            pass
        first = self._rows.head(len(ids))
        if first["exchange_id"].equals(ids):
            self._rows = self._rows.slice(len(ids))
            return first
        is_wanted = pl.col("exchange_id").is_in(ids.implode())
        while int(self._rows.select(is_wanted.sum()).item()) < len(ids) and self._has_more():
            pass
        found, self._rows = self._rows.filter(is_wanted), self._rows.filter(~is_wanted)
        return found

    def _has_more(self) -> bool:
        """Whether another group came."""
        group = next(self._groups, None)
        if group is not None:
            self._rows = pl.concat([self._rows, group]) if len(self._rows) else group
        return group is not None


def _places_of_requests(trace: Trace, only: RootIds) -> dict[str, NDArray[np.int64]]:
    """The rows of the tables `spans` and `exchanges` that belong to these requests, ascending."""
    spans = _frame(trace.read("spans", ["trace_id", "span_id"]))
    mine = spans["trace_id"].is_in(pl.Series(only, dtype=pl.Int64).implode())
    ids = spans["span_id"].filter(mine)
    exchanges = _frame(trace.read("exchanges", ["exchange_id"]))["exchange_id"].is_in(ids.implode())
    return {"spans": np.flatnonzero(mine), "exchanges": np.flatnonzero(exchanges)}


def join_spans(spans: pa.Table, exchanges: pa.Table) -> pl.DataFrame:
    """Exchanges with their spans' columns, and for each root its `duration_ns`, the sum of its trace's ledger."""
    return with_durations(_side_by_side(_with_texts(exchanges), _with_texts(spans)))


def with_durations(rows: pl.DataFrame) -> pl.DataFrame:
    """`rows` with `duration_ns`, computed from `trace_id, depth, critical_ns`."""
    of = rows.select("trace_id", "depth", "critical_ns")
    below = of.filter(pl.col("depth") > 0).group_by("trace_id").agg(below=pl.col("critical_ns").sum())
    sums = of.join(below, on="trace_id", how="left", maintain_order="left")
    whole = pl.col("critical_ns").fill_null(0) + pl.col("below").fill_null(0)
    return rows.hstack(sums.select(pl.when(pl.col("depth") == 0).then(whole).alias(DURATION)))


def _frame(table: pa.Table) -> pl.DataFrame:
    return pl.DataFrame(table)


def _with_texts(table: pa.Table) -> pl.DataFrame:
    return _frame(table).with_columns(pl.col(pl.Categorical).cast(pl.String))


def _side_by_side(exchanges: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    if exchanges["exchange_id"].equals(spans["span_id"]):  # no streams: nothing is copied
        return exchanges.hstack(spans.drop("span_id"))
    return exchanges.join(spans, left_on="exchange_id", right_on="span_id", maintain_order="right")
