"""The outcomes of the clients' attempts, for the headline: how many failed and how, and how many their clients gave up.

An attempt is a request of a client, or a client's connection that was never established, so that no request could be
sent. A call that a server makes for a request is no attempt of its own: it counts if the client's request failed.

Limits: a client that retries after a failure makes two attempts, of which one failed.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from collector.reporting.root_requests import RootRequests
from collector.requests.outcomes import Outcome, is_abandoned
from collector.requests.results import answer_text
from collector.trace.durations import in_words

UNCONNECTED: Mapping[str, str] = MappingProxyType(
    {
        "connection_refused": "refused",
        "connection_unanswered": "not answered",
        "listen_queue_full": "not answered",
        "syn_retry": "not answered",
        "port_reuse": "not answered",
    }
)
"""Kinds of findings that count connections never established, and the fate of these connections in words."""
MOST_STATUSES = 2
"""At most so many statuses are named, those with the most requests."""


class Attempts(Struct, frozen=True):
    """The outcomes of all clients' attempts."""

    count: int
    requests_count: int  # of these; the rest are connections
    failed_count: int
    failed_words: str  # `20 connections were refused, 4 requests got no answer`
    abandoned_count: int
    abandoned_median_ns: int | None  # how long their clients had waited

    @property
    def lead(self) -> str:
        """`24 of 40 attempts failed: …`, `20 of 120 requests were given up by their clients …`; "" if neither."""
        if not self.failed_count:
            return f"{_share_words(self.abandoned_count, self)} {self._given_up}" if self.abandoned_count else ""
        more = f"; {self.abandoned_count:,} more {self._given_up}" if self.abandoned_count else ""
        return f"{_share_words(self.failed_count, self)} failed: {self.failed_words}{more}"

    @property
    def _given_up(self) -> str:
        one = self.abandoned_count == 1
        waited = "" if self.abandoned_median_ns is None else f" after {in_words(self.abandoned_median_ns)}"
        waited += "" if one or not waited else " at the median"
        return f"{'was given up by its client' if one else 'were given up by their clients'}{waited}"


def attempts_of(roots: RootRequests, findings: pa.Table | None) -> Attempts:
    """The attempts of a trace.

    Arguments: its root requests; the table `findings`, which counts the connections that were never established.
    """
    requests = roots.of_clients(np.ones(len(roots.ids), np.bool_))
    failed = roots.kinds_of(requests).filter(pl.col("outcome").cast(pl.String) == Outcome.FAILED)
    left = pl.Series(roots.duration_ns[requests & roots.of_kinds(is_abandoned())])
    unconnected = _unconnected_counts(findings)
    words = [_plural(count, "connection", f"{what}") for what, count in unconnected.items()]
    requests_count, median = int(requests.sum()), left.quantile(0.5, "linear")
    return Attempts(
        count=requests_count + sum(unconnected.values()),
        requests_count=requests_count,
        failed_count=int(failed["count"].sum()) + sum(unconnected.values()),
        failed_words=", ".join([*words, *_requests_words(failed)]),
        abandoned_count=len(left),
        abandoned_median_ns=None if median is None else round(median),
    )


def _unconnected_counts(findings: pa.Table | None) -> dict[str, int]:
    """The counts of clients' connections never established, by their fate."""
    found: dict[str, int] = {}
    if findings is None:
        return found
    rows = findings.select(["kind", "failed_count"]).filter(pc.is_in(findings["kind"].cast(pa.string()), _KINDS))
    for row in rows.to_pylist():
        what = UNCONNECTED[row["kind"]]
        found[what] = found.get(what, 0) + (row["failed_count"] or 0)
    return {what: count for what, count in found.items() if count}


_KINDS = pa.array([*UNCONNECTED])


def _requests_words(failed: pl.DataFrame) -> Iterator[str]:
    """Clauses about how requests failed, as their clients saw it. Arguments: the kinds of these requests."""
    answered = failed.filter(~pl.col("is_silent") & ~pl.col("is_ended"))
    answer = ("status", "result")
    counts = answered.group_by(answer).agg(pl.col("count").sum())
    by_answer = counts.sort("count", *answer, descending=[True, False, False])
    for status, result, count in by_answer.head(MOST_STATUSES).rows():
        said = answer_text(status, result)
        yield _plural(count, "request", f"answered {said}" if said else "broken off")
    rest = int(by_answer["count"].slice(MOST_STATUSES).sum())
    if rest:
        yield _plural(rest, "request", "answered with other statuses")
    lost = int(failed.filter("is_silent")["count"].sum())
    if lost:
        yield f"{lost:,} request{'s' * (lost > 1)} got no answer"
    short = int(failed.filter(~pl.col("is_silent") & pl.col("is_ended"))["count"].sum())
    if short:
        yield f"{short:,} got less than the whole answer"


def _plural(count: int, noun: str, what: str) -> str:
    """`1 connection was refused`, `20 connections were refused`."""
    return f"{count:,} {noun} was {what}" if count == 1 else f"{count:,} {noun}s were {what}"


def _share_words(count: int, attempts: Attempts) -> str:
    """`24 of 40 attempts`, `the only request`, `all 4 requests`."""
    noun = "request" if attempts.requests_count == attempts.count else "attempt"
    if count == attempts.count:
        return f"The only {noun}" if count == 1 else f"All {count:,} {noun}s"
    return f"{count:,} of {attempts.count:,} {noun}s"
