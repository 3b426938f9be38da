"""A trace, opened for scripts and notebooks."""

from collections.abc import Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from collector.queries.search import found_roots
from collector.queries.trace_view import TraceView, check_trace, open_trace
from collector.queries.what_if import Changes, Forecast, what_if
from collector.queries.why import (
    SLOWEST,
    Why,
    explain,
    explain_against_request,
    explain_against_trace,
    explain_slowest,
    find_request,
)
from collector.reporting.report import Report, build_report
from collector.sql.database import Database, QueryLimits
from collector.sql.views import VIEWS
from collector.trace.reading import Trace as StoredTrace
from twintap.rows import Rows

MEMORY_MIB = 4096


def open(url: str) -> "Trace":
    """The trace in a folder, or at a URL (`s3://`, `https://`). Raises: `twintap.Error` if there is none."""
    check_trace(url)
    return Trace(url)


class Trace:
    """A trace. Its tables are those of `tracer query` (docs/query.md); `columns` says what they hold."""

    def __init__(self, url: str, memory_mib: int = MEMORY_MIB) -> None:
        """Arguments: `memory_mib`, what a query may use."""
        self.url, self._memory_mib = url, memory_mib

    @cached_property
    def _view(self) -> TraceView:
        return open_trace(self.url)

    def _database(self, only: NDArray[np.int64] | None = None) -> Database:
        return Database(StoredTrace(self.url), QueryLimits(self._memory_mib), only)

    def sql(self, query: str) -> Rows:
        """The rows of a query in SQL (DuckDB's)."""
        return Rows(self._database, query)

    def _table(self, name: str, where: str | None) -> Rows:
        return self.sql(f"SELECT * FROM {name}" + (f" WHERE {where}" if where else ""))

    def requests(self, where: str | None = None, *, search: str | None = None) -> Rows:
        """Requests with their answers: those of clients (`parent_id IS NULL`), and those made on their behalf.

        Arguments: `where`, of this and the following, a condition in SQL; `search`, only the requests that a search
        finds, with their calls: `'PUT host:db1 not status:ok'` (docs/search.md).
        Raises: `twintap.Error` for a search that makes no sense or finds no request.
        """
        if search is None:
            return self._table("requests", where)
        found = found_roots(self._view, search)
        rows = Rows(lambda: self._database(found), "SELECT * FROM requests")
        return rows.where(where) if where else rows

    def packets(self, where: str | None = None) -> Rows:
        """Packets from host to host: sent here, received there."""
        return self._table("packets", where)

    def connections(self, where: str | None = None) -> Rows:
        """TCP connections."""
        return self._table("connections", where)

    def findings(self, where: str | None = None) -> Rows:
        """What is wrong or remarkable."""
        return self._table("findings", where)

    def hosts(self, where: str | None = None) -> Rows:
        """The captured hosts."""
        return self._table("hosts", where)

    def clocks(self, where: str | None = None) -> Rows:
        """Their clocks, against the reference host's."""
        return self._table("clocks", where)

    def pairing(self, where: str | None = None) -> Rows:
        """How well each direction of each connection was paired."""
        return self._table("pairing", where)

    def counters(self, where: str | None = None) -> Rows:
        """Problems with the captures, counted."""
        return self._table("counters", where)

    def silences(self, where: str | None = None) -> Rows:
        """Stretches of messages in which none of their bytes was on the way."""
        return self._table("silences", where)

    def streams(self, where: str | None = None) -> Rows:
        """Subscriptions, tunnels: connections on which nobody waits for an answer."""
        return self._table("streams", where)

    def usage(self, where: str | None = None) -> Rows:
        """What the hosts used of processors, disks and networks, if it was recorded."""
        return self._table("usage", where)

    @staticmethod
    def columns(table: str) -> Mapping[str, str]:
        """The meaning of each column of a table. Raises: KeyError for a table that there is not."""
        return {view.name: {each.name: each.meaning for each in view.columns} for view in VIEWS}[table]

    def report(self) -> Report:
        """What `tracer report` shows."""
        return build_report(self.url)

    def why(self, request: str | None = None, *, against: str | None = None, other: "Trace | None" = None) -> Why:
        """Why a request took longer than others of its class, as `tracer why` shows it.

        Arguments: `request`, a transaction id, `#12` as the pages number it, or `slowest`; without it, the slowest that
        has others like it. `against`, another one to compare with; `other`, a trace whose requests of the same class it
        is compared with.
        Raises: `twintap.Error` if there is nothing to compare with.
        """
        if request is None and against is None and other is None:
            return explain_slowest(self._view)
        number = find_request(self._view, request or SLOWEST)
        if against is not None:
            return explain_against_request(self._view, number, find_request(self._view, against))
        if other is not None:
            return explain_against_trace(self._view, number, other._view)
        return explain(self._view, number)

    def what_if(self, changes: Changes, *, search: str | None = None) -> Forecast:
        """How long requests would have taken otherwise, as `tracer what-if` shows it.

        Arguments: `changes`, `twintap.Changes(quorum=1, round_trip=0.5)`; `search`, only the requests that it finds.
        Raises: `twintap.Error` for a change that makes no sense, or if there is no request.
        """
        return what_if(self._view, changes, search or "")

    def __repr__(self) -> str:
        return f"twintap.open({self.url!r})"
