"""Statistics over all requests of a trace: their kinds, how long they took, what the slow ones have in common.

An instance is `TraceView.load`. Results are aggregated here, so that a result about a million requests is as small as
one about a hundred. Tables are computed at first use and kept. Times are int64 ns since the trace's start.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Literal, Protocol, TypeVar

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from collector.queries import latency
from collector.queries.lane_bands import Served
from collector.queries.latency import AtConcurrency, Durations, Flight, Scatter
from collector.queries.origins import request_origins
from collector.queries.overlay import LaneGroups, Overlay, WholeHops, overlay
from collector.queries.request_table import RequestClass
from collector.queries.service_graph import Calls, HopCounts, ServiceGraph, calls_of, service_graph
from collector.queries.slowness import Slowness
from collector.queries.span_trees import SpanTrees
from collector.queries.stored_requests import StoredRequests
from collector.requests.request_words import WORDED, request_words
from collector.requests.results import answer_text

Answer = TypeVar("Answer")

SLOW_SHARE, TYPICAL = 0.95, (0.25, 0.75)
"""As `collector.reporting.comparison` has them: slow requests are above this quantile, typical ones between those."""
FLIGHT_BINS = 600
SELECTIONS_KEPT = 32
"""Of which latencies are kept: at most 60 KiB each."""
ANSWERS_KEPT = 4
"""Of questions that only pages know."""
Order = Literal["slowest", "first", "largest", "most in flight"]
_ORDERS: dict[Order, tuple[str, bool]] = {
    "slowest": ("duration_ns", True),
    "first": ("start_ns", False),
    "largest": ("bytes", True),
    "most in flight": ("in_flight", True),
}
ORDERS = tuple(_ORDERS)
_OF_ROWS = (
    *("status", "result", "client_host", "server_host", "client_peer", "server_peer", "transaction_id"),
    *WORDED,
)
"""Columns of a root that a row of a list needs."""
Part = Literal["all", "slow", "typical"]


class RequestSelection(Struct, frozen=True):
    """Some requests of a trace: those that satisfy all given conditions."""

    class_name: str = ""
    outcome: str = ""  # as `collector.requests.outcomes` has them; "" for any
    from_ns: int | None = None  # of the beginning
    to_ns: int | None = None
    least_ns: int | None = None  # of the duration
    most_ns: int | None = None
    caller: str = ""  # with an exchange from here
    callee: str = ""  # … to there, as nodes of the service graph
    found: NDArray[np.int64] | None = None  # their numbers, of those that a search found


class RequestRow(Struct, frozen=True):
    """A request in a list of many."""

    number: int
    class_name: str
    words: str  # what it asks for
    status: int
    result: str
    outcome: str
    client: str
    server: str
    start_ns: int
    duration_ns: int
    ended: bool  # otherwise its end was not seen, and its duration is at least so long
    bytes: int
    in_flight: int
    transaction_id: str

    @property
    def answer(self) -> str:
        """What the answer says of its result; "" if nothing is visible."""
        return answer_text(self.status, self.result)


class Latencies(Struct, frozen=True):
    """How long some requests took: over time, by how many were in flight, and how many were."""

    scatter: Scatter
    by_concurrency: tuple[AtConcurrency, ...]
    in_flight: Flight


class Hops(Protocol):
    """The queries about packets that statistics need."""

    def whole_hops(self, numbers: NDArray[np.int64]) -> Iterable[WholeHops]:
        """The hops of some requests that were seen at both ends."""
        ...

    def delays(self) -> Iterable[tuple[NDArray[np.uint16], NDArray[np.uint16], NDArray[np.int64]]]:
        """Source, target and delay of all hops that were seen at both ends."""
        ...

    def hops_by_span(self) -> HopCounts:
        """The numbers of each span's hops, of those lost, and of those sent again."""
        ...


class Load:
    """Statistics of one trace. Safe to use from several threads: a cached result is only replaced by an equal one."""

    def __init__(
        self,
        trees: SpanTrees,
        requests: StoredRequests,
        hops: Hops,
        lanes: Sequence[str],
        services: Sequence[tuple[str, ...]],
        duration_ns: int,
    ) -> None:
        self._trees, self._requests, self._hops = trees, requests, hops
        self._lanes, self._services, self._duration_ns = lanes, services, duration_ns
        self._latencies = lru_cache(SELECTIONS_KEPT)(self._latencies_of)
        self._graph = lru_cache(2)(lambda hosts_apart: service_graph(self._calls.ends(hosts_apart)))
        self._answers = lru_cache(ANSWERS_KEPT)(lambda make, *of: make(self, *of))

    def answer(self, make: Callable[..., Answer], *of: Hashable) -> Answer:
        """What `make` returns for these statistics and arguments; the last answers are kept as long as they are."""
        found: Answer = self._answers(make, *of)
        return found

    @property
    def table(self) -> pl.DataFrame:
        """Every request, as from `request_table`."""
        return self._requests.table

    @property
    def classes(self) -> tuple[RequestClass, ...]:
        """The classes of requests, from `request_classes`."""
        return self._requests.classes

    def under_way(self, host: str, service: str, at_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many requests to a service on a host were under way at each of some times."""
        begun, ended = self._times_at(host, service)
        return np.searchsorted(begun, at_ns, side="right") - np.searchsorted(ended, at_ns, side="left")

    def usually_under_way(self, host: str, service: str) -> float:
        """How many they were at the beginning of one, the median (itself included)."""
        begun, _ = self._times_at(host, service)
        return float(np.median(self.under_way(host, service, begun))) if len(begun) else 0.0

    def _times_at(self, host: str, service: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        mine = self._trees.frame.lazy().filter((pl.col("server_host") == host) & (pl.col("service") == service))
        # A client's pause is no part of its request, so it is not under way from its start on, but for its duration.
        times = mine.select("end", begun=pl.col("end") - pl.col("duration_ns")).collect()
        return np.sort(times["begun"].to_numpy()), np.sort(times["end"].to_numpy())

    def select(self, selection: RequestSelection, *columns: str) -> pl.DataFrame:
        """These columns (all without any) of some rows of `table`."""
        rows = self.table.lazy()
        if selection.found is not None:
            is_found = np.zeros(len(self.table), np.bool_)
            is_found[selection.found] = True
            rows = rows.with_columns(found=is_found).filter("found").drop("found")
        conditions = _conditions(selection)
        if conditions:
            rows = rows.filter(pl.all_horizontal(conditions))
        if selection.caller or selection.callee:
            rows = rows.filter(pl.col("number").is_in(self._requests_with_call(selection).implode()))
        return rows.select(columns or pl.all()).collect()

    def rows(
        self, selection: RequestSelection, order: Order, first: int, limit: int
    ) -> tuple[int, tuple[RequestRow, ...]]:
        """The number of selected requests, and some of them in the given order."""
        column, descending = _ORDERS[order]
        chosen = self.select(selection, "number", column)
        ranked = chosen["number"].to_numpy(), chosen[column].to_numpy()
        numbers = _first_of(*ranked, descending=descending, most=first + limit)[first:]
        page = self.table[numbers].hstack(self._trees.roots(numbers, _OF_ROWS))
        words = [request_words(row) for row in page.select(WORDED).iter_rows(named=True)]
        named = page.rename({"class": "class_name"}).with_columns(
            client=pl.coalesce("client_host", "client_peer"),
            server=pl.coalesce("server_host", "server_peer"),
            words=pl.Series(words, dtype=pl.String),
        )
        named = named.select(list(RequestRow.__struct_fields__)).with_columns(pl.col(pl.Categorical).cast(pl.String))
        filled = named.with_columns(pl.col(pl.String).fill_null(""), pl.col("status").fill_null(0))
        return len(chosen), tuple(RequestRow(**row) for row in filled.iter_rows(named=True))

    def numbers_of(self, transaction_ids: Sequence[str]) -> tuple[int | None, ...]:
        """The first request with each of these transaction ids, None where there is none."""
        spans = self._trees.frame.select("transaction_id", "request")
        known = spans.filter(pl.col("transaction_id").is_in(list(filter(None, transaction_ids))))
        first = dict(known.group_by("transaction_id").agg(pl.col("request").min()).iter_rows())
        return tuple(first.get(each) for each in transaction_ids)

    def answers(self, numbers: Sequence[int]) -> Mapping[int, str]:
        """What the answers of some requests say, by their numbers; "" if nothing is visible."""
        rows = self._trees.roots(np.array(numbers, np.int64), ("status", "result")).iter_rows()
        answers = (answer_text(status or 0, result or "") for status, result in rows)
        return dict(zip(numbers, answers, strict=True))

    def part(self, selection: RequestSelection, part: Part) -> pl.DataFrame:
        """`number` and `duration_ns` of the slow or the typical requests of those selected, or of all of them."""
        rows, took = self.select(selection, "number", "duration_ns"), pl.col("duration_ns")
        if part == "slow":
            return rows.filter(took > took.quantile(SLOW_SHARE, "linear"))
        if part == "typical":
            low, high = (took.quantile(each, "linear") for each in TYPICAL)
            return rows.filter(took.is_between(low, high))
        return rows

    def overlay(
        self, requests: pl.DataFrame, window: tuple[int, int, int], aligned_at_end: bool, by_service: bool
    ) -> Overlay:
        """The packets of some rows of `table`, laid over each other; `window` as in `overlay.overlay`."""
        numbers = np.sort(requests["number"].to_numpy()).astype(np.int64)
        zero_ns = np.asarray(self._trees.end_ns if aligned_at_end else self._trees.start_ns)
        groups = LaneGroups.of(self.lane_names(by_service))
        return overlay(self._hops.whole_hops(numbers), zero_ns, len(requests), groups, window)

    def lane_names(self, by_service: bool) -> list[str]:
        """Of each lane of the timeline; hosts that serve the same are one by service."""
        if not by_service:
            return list(self._lanes)
        return [", ".join(served) or host for host, served in zip(self._lanes, self._services, strict=True)]

    def latencies(self, selection: RequestSelection) -> Latencies:
        """How long the selected requests took. Kept for the last selections without a search."""
        return self._latencies(selection) if selection.found is None else self._latencies_of(selection)

    def _latencies_of(self, selection: RequestSelection) -> Latencies:
        return Latencies(
            latency.scatter(self.select(selection, *latency.OF_SCATTER), self._duration_ns),
            latency.by_concurrency(self.select(selection, *latency.OF_CONCURRENCY)),
            latency.in_flight(self.select(selection, *latency.OF_FLIGHT), self._duration_ns, FLIGHT_BINS),
        )

    @property
    def slowness(self) -> Slowness:
        """When clients' requests were slow, over the whole trace."""
        return self._requests.slowness

    @cached_property
    def by_server(self) -> Served:
        """All requests by the host that served them."""
        return Served(self._trees.frame, self._lanes)

    @cached_property
    def origins(self) -> NDArray[np.uint8]:
        """Whose request each one is: `origins.Origin`."""
        return request_origins(self.table, self._trees.frame)

    @cached_property
    def class_durations(self) -> tuple[Durations, ...]:
        """Durations of requests, by class."""
        return latency.by_group(self.table, "class")

    @cached_property
    def service_durations(self) -> tuple[Durations, ...]:
        """Durations of exchanges, by the service that answered."""
        return latency.by_group(self._calls.ends(hosts_apart=False), "callee")

    @cached_property
    def hop_delays(self) -> tuple[Durations, ...]:
        """One-way delays of packets that were seen at both ends, by pair of hosts: the slowest median first."""
        return latency.delays_by_pair(self._hops.delays(), self._lanes)

    def graph(self, hosts_apart: bool) -> ServiceGraph:
        """The graph of calls between services."""
        return self._graph(hosts_apart)

    @cached_property
    def _calls(self) -> Calls:
        return calls_of(self._trees.frame, self._hops.hops_by_span())

    def _requests_with_call(self, selection: RequestSelection) -> pl.Series:
        """Numbers of the requests that include a call between two nodes, of either graph."""
        found = [self._calls.requests_between(selection.caller, selection.callee, apart) for apart in (False, True)]
        return pl.concat(found).unique()


def _first_of(
    numbers: NDArray[np.int32], values: NDArray[np.generic], *, descending: bool, most: int
) -> NDArray[np.int32]:
    """The numbers of at most so many requests with the least values, or the greatest; of equal ones the lower number
    first. Arguments: numbers in ascending order."""
    ranked = -values.astype(np.int64) if descending else values
    places = np.arange(len(ranked)) if len(ranked) <= most else _least(ranked, most)
    return numbers[places[np.lexsort((places, ranked[places]))][:most]]


def _least(values: NDArray[np.generic], count: int) -> NDArray[np.intp]:
    """The places of the least values; of equal ones the first."""
    limit = pl.Series(values).bottom_k(count).to_numpy().max()  # numpy's partition is slow on equal values
    below = np.flatnonzero(values < limit)
    return np.append(below, np.flatnonzero(values == limit)[: count - len(below)])


def _conditions(selection: RequestSelection) -> list[pl.Expr]:
    start, took = pl.col("start_ns"), pl.col("duration_ns")
    found = [
        start >= selection.from_ns if selection.from_ns is not None else None,
        start <= selection.to_ns if selection.to_ns is not None else None,
        took >= selection.least_ns if selection.least_ns is not None else None,
        took <= selection.most_ns if selection.most_ns is not None else None,
        pl.col("class") == selection.class_name if selection.class_name else None,
        pl.col("outcome") == selection.outcome if selection.outcome else None,
    ]
    return [each for each in found if each is not None]
