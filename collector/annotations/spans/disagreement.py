"""Where spans of other tracers and the packets of their requests disagree, beyond what their times may be off.

A span is held against what the same host's capture saw of its request, so no clock of another host enters: both ends
of a span are off by what its format rounds. Of a client's span that is longer than its request on the wire, the rest
passed inside the client: before its first packet (a pool, a name to look up, a busy thread), or after the
last packet of the answer. Of a server's span that is shorter than the request was there, the rest passed before its
handler began (a queue, middleware without instrumentation), or while the answer was still sent. A span that begins or
ends where that is impossible lies outside of its request: its program's clock is another one than the capture's. Then
nothing else is said of it.

Spans that this product has exported itself are left out: they last as packets do.
"""

from enum import StrEnum

import polars as pl
import pyarrow as pa
from msgspec import Struct

from collector.trace.durations import in_words
from collector.trace.reading import Trace

SPAN_COLUMNS = (
    *("annotation_id", "kind", "host", "service", "name", "text", "start_trace_ns", "duration_ns"),
    *("duration_uncertainty_ns", "exchange_id", "side"),
)
EXCHANGE_COLUMNS = (
    *("exchange_id", "client_host", "server_host", "connect_start_trace_ns", "request_head_received_trace_ns"),
    *("request_first_sent_trace_ns", "request_first_received_trace_ns", "response_first_sent_trace_ns"),
    *("response_first_received_trace_ns", "response_last_sent_trace_ns", "response_last_received_trace_ns"),
)
_OWN = "twintap.exchange_id: "


class DisagreementKind(StrEnum):
    """What is longer, by whom."""

    CLIENT_BEFORE = "client_before"
    CLIENT_AFTER = "client_after"
    SERVER_BEFORE = "server_before"
    SERVER_AFTER = "server_after"
    OUTSIDE = "outside"


_WORDS = {
    DisagreementKind.CLIENT_BEFORE: "in the client before its first packet",
    DisagreementKind.CLIENT_AFTER: "in the client after the last packet of its answer",
    DisagreementKind.SERVER_BEFORE: "in the server before its span began",
    DisagreementKind.SERVER_AFTER: "of its answer sent after its span had ended",
    DisagreementKind.OUTSIDE: "outside of what its host's packets allow: the span's clock is off",
}


class Disagreement(Struct, frozen=True):
    """One difference between a span and the packets of its request."""

    kind: str
    annotation_id: int
    exchange_id: int
    host: str
    service: str | None
    name: str
    duration_ns: int  # of the difference
    uncertainty_ns: int

    @property
    def words(self) -> str:
        """`12.0 ms ± 1.0 µs in the server before its span began`, without the span."""
        error = f" ± {in_words(self.uncertainty_ns)}" if self.uncertainty_ns else ""
        return f"{in_words(self.duration_ns)}{error} {_WORDS[DisagreementKind(self.kind)]}"


class DisagreementLine(Struct, frozen=True):
    """All differences of one kind."""

    kind: str
    count: int
    median_ns: int
    largest: Disagreement

    @property
    def words(self) -> tuple[str, str]:
        """How many there are and of what, and the largest, as reports show it."""
        worst = self.largest
        of = f"{worst.name} of {worst.service or 'a program'} on {worst.host}, request #{worst.exchange_id}"
        noun = f"{self.count:,} span{'s' * (self.count != 1)}"
        return noun, f"{worst.words} ({of}); median {in_words(self.median_ns)}"


def disagreements(spans: pa.Table, exchanges: pa.Table) -> tuple[Disagreement, ...]:
    """What disagrees, by kind and the largest first.

    Arguments: tables with `SPAN_COLUMNS` and `EXCHANGE_COLUMNS`; what is no span of a request is left out.
    """
    rows = _frame(spans).filter(
        (pl.col("kind") == "span") & pl.col("exchange_id").is_not_null(),
        ~pl.col("text").str.contains(_OWN, literal=True),
    )
    at_ends = rows.join(_frame(exchanges), on="exchange_id", how="left")
    host_there = pl.when(pl.col("side") == "client").then("client_host").otherwise("server_host")
    same = at_ends.filter(pl.col("host") == host_there)
    found = pl.concat([_differences(same.filter(pl.col("side") == side), side) for side in ("client", "server")])
    ordered = found.sort("kind", "duration_ns", "annotation_id", descending=[False, True, False])
    return tuple(Disagreement(**row) for row in ordered.to_dicts())


def disagreement_lines(trace: Trace) -> tuple[DisagreementLine, ...]:
    """The differences of a trace by kind, the largest first; none without spans. Cost: as `annotation_lines`."""
    if not trace.rows_count("annotations"):
        return ()
    spans = pl.concat(
        _frame(part).filter((pl.col("kind") == "span") & pl.col("exchange_id").is_not_null())
        for part in trace.batches("annotations", SPAN_COLUMNS)
    )
    if spans.is_empty():
        return ()
    is_joined = pl.col("exchange_id").is_in(spans["exchange_id"].implode())
    seen = pl.concat(_frame(part).filter(is_joined) for part in trace.batches("exchanges", EXCHANGE_COLUMNS))
    of_kind: dict[str, list[Disagreement]] = {}
    for each in disagreements(spans.to_arrow(), seen.to_arrow()):
        of_kind.setdefault(each.kind, []).append(each)
    lines = (
        DisagreementLine(kind, len(found), found[len(found) // 2].duration_ns, found[0])
        for kind, found in of_kind.items()
    )
    return tuple(sorted(lines, key=lambda line: -line.largest.duration_ns))


def _differences(rows: pl.DataFrame, side: str) -> pl.DataFrame:
    """By how much spans of one side differ from their requests, where that is more than both are off."""
    start, end = pl.col("start_trace_ns"), pl.col("start_trace_ns") + pl.col("duration_ns")
    error = pl.col("duration_uncertainty_ns").fill_null(0)
    at = {name: pl.col(f"{name}_trace_ns") for name in (each.removesuffix("_trace_ns") for each in EXCHANGE_COLUMNS)}
    if side == "client":
        opened = pl.when(at["connect_start"] >= start - error).then(at["connect_start"])
        before = pl.coalesce(opened, at["request_first_sent"]) - start
        after = end - at["response_last_received"]
        outside = pl.max_horizontal(start - at["request_first_sent"], at["response_first_received"] - end)
    else:
        before = start - pl.coalesce(at["request_head_received"], at["request_first_received"])
        after = at["response_last_sent"] - end
        outside = pl.max_horizontal(at["request_first_received"] - start, start - at["response_first_sent"])
    is_inside = (outside <= error).fill_null(value=True)
    kinds = {
        DisagreementKind.OUTSIDE: outside,
        DisagreementKind(f"{side}_before"): pl.when(is_inside).then(before),
        DisagreementKind(f"{side}_after"): pl.when(is_inside).then(after),
    }
    parts = [
        rows.select(
            pl.lit(kind.value).alias("kind"),
            *("annotation_id", "exchange_id", "host", "service", "name"),
            duration_ns=amount,
            uncertainty_ns=error,
        )
        for kind, amount in kinds.items()
    ]
    return pl.concat(parts).filter(pl.col("duration_ns") > pl.col("uncertainty_ns"))


def _frame(table: pa.Table) -> pl.DataFrame:
    return pl.DataFrame(table).cast({pl.Categorical: pl.String})
