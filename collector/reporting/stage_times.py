"""Divides each request's time into stages: the ledger of its spans, summed by activity and by service.

Stages have readable names: `uplink to swift-proxy`, `work in swift-object`. Between servers, both directions of the
network are one stage, since clock offsets cancel in their sum. The same holds between clients and a service if the
clocks do not determine how the sum is split, as in the report's sentence (`collector.reporting.story`). The stages of a
request sum up exactly to its duration, as the ledger does (`collector.requests.critical_path`).
"""

from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np
import polars as pl
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from collector.reporting import story
from collector.reporting.new_ledgers import NewLedgers, new_ledgers
from collector.reporting.request_rows import RequestRows
from collector.reporting.root_requests import RootRequests, of_roots, read_roots
from collector.trace.time_columns import Int64Array

_FRONT = {
    "client_ns": "client before sending the body to",
    "connect_ns": "connecting to",
    "tls_ns": "TLS handshake with",
    "request_network_ns": "uplink to",
    "queue_ns": "queue of",
    "work_ns": "work in",
    "fan_out_wait_ns": "slower of parallel calls to",
    "server_or_network_ns": "server or network of",
    "response_network_ns": "downlink from",
    "stall_ns": "retransmission to and from",
    "request_idle_ns": "pauses in the request to",
    "response_idle_ns": "pauses in the answer of",
    "send_held_ns": "TCP held the sender, to and from",
    "reader_wait_ns": "receiver did not read, to and from",
}
"""Stages of the root span."""
_DIRECTIONS = tuple(f"{_FRONT[name]} " for name in ("request_network_ns", "response_network_ns"))
_BOTH_DIRECTIONS = "to {} and back (both ways; which way is not known)"
_BEHIND = _FRONT | {"request_network_ns": "network to and from", "response_network_ns": "network to and from"}
"""Stages of the spans below it."""
ADDED_AT_ONCE = 500_000
"""Times of requests that are added up at once."""
_PLACE = ("is_root", "service", "failed_server")
"""What determines a stage's name, in addition to the ledger's column."""
_WAYS = ("request_network_ns", "response_network_ns", "uncertainty_ns")
NEVER_CAME = "that never came"
"""The end of the name of a stage in which a request waited for a connection that was not made."""
NO_CELL = np.iinfo(np.uint32).max
"""Of a request that is in no cell."""

Numbers = NDArray[np.uint32]


class Stages(Protocol):
    """The stages of requests, which are numbered in the order of time."""

    @property
    def requests(self) -> pl.DataFrame:
        """How long each request took: `request` (its number), `kind, took`, in the order of time."""

    def sums(self, **cells: Numbers) -> pl.DataFrame:
        """The time of each stage in each cell: `stage`, a column for each of `cells`, `duration_ns` (above 0).

        Arguments: `cells`, each with the cell of each request, by its number; `NO_CELL` for one that does not count.
        """


class StageRows(Struct, frozen=True):
    """Stages that are in memory; see `Stages`."""

    rows: pl.DataFrame  # as from `request_stages`

    @property
    def requests(self) -> pl.DataFrame:
        """As `Stages`."""
        return request_durations(self.rows)

    def sums(self, **cells: Numbers) -> pl.DataFrame:
        """As `Stages`."""
        request = self.rows["request"].to_numpy()
        placed = self.rows.select("stage", "duration_ns", **_cells_of(request, cells))
        sums = placed.group_by("stage", *cells).agg(pl.col("duration_ns").sum())
        return sums.with_columns(pl.col("stage").cast(pl.String))


class StageLedger(Struct, frozen=True):
    """The stages of the clients' requests of a trace; see `Stages`. The ledger is read anew for each sum, a group of
    rows at a time.

    Memory: 16 bytes for each request and 4 for each root, and the new ledgers if there are any.
    """

    rows: RequestRows
    roots: RootRequests
    more: pl.DataFrame | None  # rows for connections that were never established
    anew: NewLedgers | None  # with `more`; None for the stored ledger
    number: Numbers  # of the request of each root; `NO_CELL` for other roots
    requests: pl.DataFrame
    split_unknown: tuple[str, ...]  # services for which the clocks do not determine how a round trip is split

    @classmethod
    def of(
        cls, rows: RequestRows, roots: RootRequests, more: pl.DataFrame | None, silences: pa.Table | None
    ) -> "StageLedger":
        """The stages of `rows`, with waits for connections that were never established.

        Arguments: the `roots` of the rows; `more`, from `story.failed_connects_of`, and the table `silences`.
        """
        places = np.flatnonzero(roots.outermost())
        places = places[np.lexsort((roots.ids[places], roots.began_ns[places]))]
        number = np.full(len(roots.ids), NO_CELL, np.uint32)
        number[places] = np.arange(len(places), dtype=np.uint32)
        kinds = roots.kinds.select(_kinds().cast(pl.Categorical).alias("kind"))["kind"]
        requests = pl.DataFrame(
            {
                "request": np.arange(len(places), dtype=np.uint32),
                "kind": kinds.gather(roots.kind[places]),
                "took": roots.duration_ns[places],
            }
        )
        del places
        anew = None if more is None else new_ledgers(rows, roots.ids, more, silences)
        return cls(rows, roots, more, anew, number, requests, _split_unknown(rows, roots, number))

    def sums(self, **cells: Numbers) -> pl.DataFrame:
        """As `Stages`. Cost: a pass over the ledger, however many `cells` are given."""
        key, spent = [*_PLACE, *cells], pl.col(*_FRONT).sum()
        parts = (
            part.with_columns(**_cells_of(part["request"].to_numpy(), cells)).group_by(key).agg(spent)
            for part in self._parts()
        )
        texts = (part.with_columns(pl.col("service").cast(pl.String)) for part in parts)
        every = pl.concat(texts).group_by(key).agg(spent)
        named = pl.concat(every.select(_stages(name), *cells, duration_ns=name) for name in _FRONT)
        sums = named.filter(pl.col("duration_ns") > 0).group_by("stage", *cells).agg(pl.col("duration_ns").sum())
        return _sum_alike(_with_both_directions(sums, self.split_unknown))

    def stage_rows(self) -> pl.DataFrame:
        """A row for each request and stage, as from `request_stages`. Memory: about 40 bytes for each."""
        return pl.concat(self.row_parts())

    def row_parts(self) -> Iterator[pl.DataFrame]:
        """As `stage_rows`, some requests at a time, each with all of its stages; at least one part.

        Memory: a group of rows, and 16 bytes for each stage of each request with calls.
        """
        has_calls = self.roots.spans_count > 1
        if self.more is not None:
            has_calls[self.roots.places_of(self.more["trace_id"].to_numpy())] = True
        root = np.zeros(len(self.requests), np.int64)
        asked = np.flatnonzero(self.number != NO_CELL)
        root[self.number[asked]] = asked
        shared = []
        for part in self._parts():
            stages = _stages_of(part)
            is_alone = pl.Series(~has_calls[root[stages["request"].to_numpy()]])  # each stage is there once
            shared.append(stages.filter(~is_alone))
            yield _with_merged_directions(self._with_requests(stages.filter(is_alone), root), self.split_unknown)
        stages = pl.concat(shared)
        turns = 1 + len(stages) // ADDED_AT_ONCE
        for turn in range(turns):
            every = self._with_requests(stages.filter(pl.col("request") % turns == turn), root)
            yield _with_merged_directions(_sum_stages(every), self.split_unknown)

    def _with_requests(self, stages: pl.DataFrame, root: Int64Array) -> pl.DataFrame:
        """Stages of requests, by the number of each, with the id and the kind of these. Arguments: their roots."""
        request = stages["request"]
        return stages.select(
            trace_id=pl.Series(self.roots.ids[root[request.to_numpy()]]),
            kind=self.requests["kind"].gather(request),
            request="request",
            stage="stage",
            duration_ns="duration_ns",
        )

    def _parts(self) -> Iterator[pl.DataFrame]:
        """The rows of requests: `_PLACE`, `request`, and the ledger without nulls."""
        columns = ("service",) if self.anew and self.anew.places is None else ("service", *_FRONT)
        before = 0
        for part, root in self.roots.batches(self.rows, *columns):
            rows = self.anew.into(part, before, _FRONT) if self.anew else part
            before += len(part)
            yield self._part(rows, root, pl.lit(None, pl.String))
        if self.more is not None and self.anew is not None:
            root = self.roots.places_of(self.more["trace_id"].to_numpy())
            rows = self.more.select("depth", "service", "server_host").with_columns(**self.anew.behind(_FRONT))
            yield self._part(rows, root, pl.col("server_host"))

    def _part(self, rows: pl.DataFrame, root: NDArray[np.int32], failed_server: pl.Expr) -> pl.DataFrame:
        request = of_roots(self.number, root, NO_CELL)
        return rows.select(
            "service",
            pl.col(*_FRONT).fill_null(0),
            is_root=pl.col("depth") == 0,
            failed_server=failed_server.cast(pl.String),
            request=pl.Series(request),
        ).filter(pl.Series(request != NO_CELL))


def _stages_of(rows: pl.DataFrame) -> pl.DataFrame:
    """`request, duration_ns, stage` (a category) of rows of requests, one for each column of the ledger that is not
    0."""
    parts = []
    for name in _FRONT:
        part = rows.select(*_PLACE, "request", duration_ns=name).filter(pl.col("duration_ns") > 0)
        parts.append(part.select("request", "duration_ns", stage=_stage_names(part, _stages(name), *_PLACE)))
    return pl.concat(parts)


def _cells_of(request: Numbers, cells: dict[str, Numbers]) -> dict[str, pl.Series]:
    """The cells of the request of each row."""
    return {name: pl.Series(cell[request], dtype=pl.UInt32) for name, cell in cells.items()}


def request_stages(spans: pa.Table, exchanges: pa.Table) -> pl.DataFrame:
    """The stages of each of the clients' requests.

    Arguments: the tables `spans` and `exchanges` of a trace. Waits for connections that were never established count as
    the waiting server's own time here; `StageLedger` separates them, if it is given `more`.
    Returns: `trace_id, kind` (`PUT at swift-proxy`), `request` (its number in the order of time, from 0), `stage,
    duration_ns`: one row for each request and stage that took time; only outermost requests of known length
    (`RootRequests.outermost`). Texts are categories.
    """
    rows = RequestRows.of_tables(spans, exchanges)
    return StageLedger.of(rows, read_roots(rows), None, None).stage_rows()


def _kinds() -> pl.Expr:
    asked = pl.coalesce(pl.col("operation", "method").cast(pl.String), pl.lit("request"))
    return pl.format("{} at {}", asked, pl.col("service"))


def _stages(name: str) -> pl.Expr:
    """The stage name of a ledger column."""
    words = pl.when("is_root").then(pl.lit(_FRONT[name])).otherwise(pl.lit(_BEHIND[name]))
    failed = pl.format(f"connections to {{}} {NEVER_CAME}", pl.col("failed_server"))
    said = pl.when(pl.col("failed_server").is_not_null()).then(failed).otherwise(pl.format("{} {}", words, "service"))
    return said.alias("stage")


def _stage_names(rows: pl.DataFrame, name: pl.Expr, *by: str) -> pl.Series:
    """A text for each row, as a category, computed once for all rows that are equal in the columns `by`."""
    alike = rows.select(by).unique()
    texts = alike.with_columns(pl.col(pl.Categorical).cast(pl.String)).select(name=name.cast(pl.Categorical))
    known = rows.select(by).join(alike.hstack(texts), on=by, how="left", nulls_equal=True, maintain_order="left")
    return known["name"]


def request_durations(stages: pl.DataFrame) -> pl.DataFrame:
    """How long each request took: `request, kind, took`, in the order of time. Arguments: their stages, from
    `request_stages`."""
    request, kind = stages["request"].to_numpy(), stages["kind"].cast(pl.Categorical)
    took = np.bincount(request, weights=stages["duration_ns"].to_numpy())
    row_of = np.full(len(took), -1)
    row_of[request] = np.arange(len(request))
    there = np.flatnonzero(row_of >= 0)
    return pl.DataFrame(
        {
            "request": there.astype(np.uint32),
            "kind": kind.gather(row_of[there]),
            "took": took[there].astype(np.int64),
        }
    )


def stage_name(column: str, service: str, *, is_root: bool) -> str:
    """The stage of a ledger column of a span."""
    return f"{(_FRONT if is_root else _BEHIND)[column]} {service}"


def merged_stage_name(service: str) -> str:
    """The stage of both directions to and from a service, where the clocks do not determine how they are split."""
    return _BOTH_DIRECTIONS.format(service)


def merged_names(stages: Iterable[str], others: Iterable[str]) -> dict[str, str]:
    """The names under which the `stages` of some requests are those of others: if both directions to a service are one
    stage there, they are here."""
    whole = {
        f"{prefix}{name}": _BOTH_DIRECTIONS.format(name)
        for prefix in _DIRECTIONS
        for name in (stage.removeprefix(prefix) for stage in stages if stage.startswith(prefix))
    }
    return {name: merged for name, merged in whole.items() if merged in set(others)}


def merge_directions_alike(groups: Iterable[pl.DataFrame]) -> list[pl.DataFrame]:
    """Groups of requests' stages (from `request_stages`): if both directions to a service are one stage in one group,
    they are in all groups."""
    every = list(groups)
    services = _services_merged(every)
    return [_with_merged_directions(group, services) for group in every]


def merge_sums_alike(groups: Iterable[pl.DataFrame]) -> list[pl.DataFrame]:
    """The same for sums (from `Stages.sums`)."""
    every = list(groups)
    services = _services_merged(every)
    return [_sum_alike(_with_both_directions(group, services)) for group in every]


def _services_merged(groups: list[pl.DataFrame]) -> list[str]:
    """The services to and from which both directions are one stage in one of the groups, and not in all."""
    stages = {stage for group in groups for stage in group["stage"].unique()}
    services = {stage.removeprefix(prefix) for stage in stages for prefix in _DIRECTIONS if stage.startswith(prefix)}
    return [name for name in services if _BOTH_DIRECTIONS.format(name) in stages]


def _split_unknown(rows: RequestRows, roots: RootRequests, number: Numbers) -> tuple[str, ...]:
    """Services for which the clocks do not determine how a round trip is split, over all requests together."""
    there, back, doubt = (pl.col(name) for name in _WAYS)
    sums = [pl.col("whole", "doubt", "count").sum()]
    parts = []
    for part, root in roots.batches(rows, "service", *_WAYS):
        asked = (part["depth"] == 0) & pl.Series(of_roots(number, root, NO_CELL) != NO_CELL)
        both = part.filter(asked & (part["request_network_ns"] > 0) & (part["response_network_ns"] > 0))
        spent = both.select("service", whole=there + back, doubt=doubt, count=pl.lit(1, pl.Int64))
        parts.append(spent.group_by("service").agg(sums).with_columns(pl.col("service").cast(pl.String)))
    is_open = pl.col("doubt") >= story.OPEN_SHARE * pl.col("whole")
    is_long = pl.col("whole") / pl.col("count") >= story.OPEN_LEAST_NS
    return tuple(pl.concat(parts).group_by("service").agg(sums).filter(is_open & is_long)["service"])


def _with_merged_directions(stages: pl.DataFrame, services: Iterable[str]) -> pl.DataFrame:
    """Requests' stages with both directions to and from each of these services merged to one stage."""
    merged = _with_both_directions(stages, services)
    return stages if merged is stages else _sum_stages(merged)


def _with_both_directions(stages: pl.DataFrame, services: Iterable[str]) -> pl.DataFrame:
    """`stages`, in which both directions to and from each of these services have one name; the same without any."""
    whole = {f"{prefix}{name}": _BOTH_DIRECTIONS.format(name) for name in services for prefix in _DIRECTIONS}
    if not whole:
        return stages
    return stages.with_columns(stage=_stage_names(stages, pl.col("stage").replace(whole), "stage"))


def _sum_alike(sums: pl.DataFrame) -> pl.DataFrame:
    """Add up sums of the same stage and cells."""
    named = sums.with_columns(pl.col("stage").cast(pl.String))
    return named.group_by(pl.exclude("duration_ns")).agg(pl.col("duration_ns").sum())


def _sum_stages(stages: pl.DataFrame) -> pl.DataFrame:
    """Add up each request's stages, `ADDED_AT_ONCE` rows at a time: a sum over groups needs twice their memory."""
    of_request, turns = pl.col("kind", "request").first(), 1 + len(stages) // ADDED_AT_ONCE
    turn = pl.col("trace_id") % turns
    parts = (
        stages.filter(turn == each).group_by("trace_id", "stage").agg(of_request, pl.col("duration_ns").sum())
        for each in range(turns)
    )
    return pl.concat(parts).select("trace_id", "kind", "request", "stage", "duration_ns")
