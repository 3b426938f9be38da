"""Findings about clients' requests that took longer while daemons' requests were under way at the same host.

A host is *busy with background* while background work is under way that it asks or that is asked of it: a request whose
User-Agent names a daemon of services.toml, or of a kind that has a rhythm of its own
(`collector.services.client_requests`). Compared are the requests that the host serves for clients, by
service, method and operation: those that began in such a stretch, and those that began just before and just after it,
as long as it lasted.

1. The stretches of a host: the union of its daemons' requests, gaps up to `gap_most_ns` closed.
2. For each stretch with enough requests within and beside it: whether the quantile (median, or nine of ten) of those
   within is larger.
3. A sign test over the stretches: how likely so many are slower by chance, if slower and faster are as likely. Since
   one stretch is one observation, it does not matter that requests of one moment are slow together; and since requests
   are compared with those beside them, load that changes slowly does not matter.
4. That probability, times the number of comparisons of the whole trace (Bonferroni), is at most `chance_most_share`;
   and the quantile over all stretches is `slower_ratio` times that over all other requests.

Requests are chosen by when they begin: long ones would overlap more stretches by their length alone.

Limits: it says "while", never "because": both may follow from a third thing, and a slow host makes its daemons'
requests longer, too. Transfers that are no requests are not known as background. Of a background that never rests,
nothing is said.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import comb
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from collector.findings.finding import Finding, listing, times
from collector.findings.observations import Observations
from collector.findings.requests import Requests
from collector.services.client_requests import RHYTHM_COLUMNS, has_own_rhythm, times_served
from collector.trace.durations import in_words
from collector.trace.request_times import BEGIN
from collector.trace.threshold import threshold
from collector.trace.time_columns import UNSEEN, Int64Array

KIND = "slower_beside_background"
QUANTILES = (0.5, 0.9)
CLASS = ["service", "method", "operation"]
MOST_STRETCHES = 10_000
"""Of more, those that begin first are judged."""


@dataclass(frozen=True, slots=True)
class BackgroundThresholds:
    """By which clients' requests count as slower while daemons are at work."""

    gap_most_ns: int = threshold(
        200_000_000, "chosen: a daemon that pauses for less between two requests is taken to be at work"
    )
    stretch_least_requests_count: int = threshold(
        4, "chosen: a stretch with fewer requests within or beside it is not judged; ten are needed for nine of ten"
    )
    least_requests_count: int = threshold(30, "chosen: of fewer requests within all stretches nothing is said")
    slower_ratio: float = threshold(1.5, "chosen: less is a difference that somebody has to look for")
    slower_least_ns: int = threshold(1_000_000, "chosen: smaller differences are ignored")
    chance_most_share: float = threshold(
        0.05, "by chance one trace in so many has such a finding: a sign test, times the number of comparisons"
    )


class _Stretches(NamedTuple):
    """When daemons were at work at a host: apart, ascending."""

    begin: Int64Array
    end: Int64Array


class _Judged(NamedTuple):
    """A comparison: how many stretches were slower at a quantile, of how many that differ."""

    host: str
    requests_class: tuple[str, str, str]
    quantile: float
    slower: int
    judged: int
    inside: Int64Array  # ns that each took, within stretches
    outside: Int64Array
    worst: int  # the stretch with the largest difference

    @property
    def chance(self) -> float:
        """How likely so many or more are slower, if slower and faster are as likely."""
        return sum(comb(self.judged, count) for count in range(self.slower, self.judged + 1)) / 2**self.judged


def find(seen: Observations, limits: BackgroundThresholds) -> Iterator[Finding]:
    """For each host the comparison that costs most, if any is more than chance."""
    requests = seen.requests
    background = _in_background(requests)
    if not background.any():
        return
    known = (requests.begin != UNSEEN) & (requests.ended != UNSEEN)
    clients = known & requests.waited & ~background
    clients[requests.given_up()[0]] = False
    hosts = requests.groups.select(pl.col("server_host", "client_host").cast(pl.String))
    found: list[tuple[_Judged, _Stretches]] = []
    for host in sorted(set(hosts["server_host"].drop_nulls())):
        at_host = requests.where((pl.col("server_host") == host) | (pl.col("client_host") == host))
        stretches = _stretches(requests, np.flatnonzero(at_host & background & known), limits)
        served = np.flatnonzero(requests.where(pl.col("server_host") == host) & clients)
        if len(stretches.begin) and len(served):
            found += [(each, stretches) for each in _comparisons(requests, host, served, stretches, limits)]
    sound = [pair for pair in found if _is_sound(pair[0], len(found), limits)]
    for host in sorted({judged.host for judged, _ in sound}):
        here = [pair for pair in sound if pair[0].host == host]
        yield _finding(*max(here, key=lambda pair: _cost_ns(pair[0])), requests)


def _in_background(requests: Requests) -> NDArray[np.bool_]:
    """Which requests are background work, of those that no other request caused."""
    found = requests.is_root & ~requests.waited
    if found.any():
        asked = np.flatnonzero(found)
        is_daemon = requests.frame(asked, "background").to_series().fill_null(value=False).to_numpy()
        others = asked[~is_daemon]
        calls = requests.frame(others, "client_host", "service", *BEGIN.columns).with_columns(begin=BEGIN.expr())
        callers = calls["client_host"].cast(pl.String).drop_nulls().unique().implode()
        served = requests.where(pl.col("server_host").cast(pl.String).is_in(callers))
        found[others] = has_own_rhythm(calls, times_served(requests.frame(served, *RHYTHM_COLUMNS))).to_numpy()
    return found


def _stretches(requests: Requests, rows: Int64Array, limits: BackgroundThresholds) -> _Stretches:
    """The union of requests, gaps closed."""
    rows = rows[np.argsort(requests.begin[rows], kind="stable")]
    begin, reach = requests.begin[rows], np.maximum.accumulate(requests.ended[rows])
    first = np.flatnonzero(np.append(len(rows) > 0, begin[1:] > reach[:-1] + limits.gap_most_ns))[:MOST_STRETCHES]
    last = np.append(first[1:], len(rows)) - 1
    return _Stretches(begin[first], reach[last]) if len(rows) else _Stretches(begin, reach)


def _comparisons(
    requests: Requests,
    host: str,
    served: Int64Array,
    stretches: _Stretches,
    limits: BackgroundThresholds,
) -> Iterator[_Judged]:
    """A comparison for each class of the requests that a host served, and each quantile."""
    names = requests.groups.select(pl.col(CLASS).cast(pl.String).fill_null(""))
    number = names.select(pl.struct(CLASS).rank("dense")).to_series().to_numpy()[requests.group[served]]
    for each in np.unique(number):
        rows = served[number == each]
        rows = rows[np.argsort(requests.begin[rows], kind="stable")]
        pause_ns = requests.pause_ns[rows]
        begin, own = requests.begin[rows], requests.ended[rows] - requests.begin[rows]
        own -= np.where(pause_ns == UNSEEN, 0, pause_ns)
        place = np.searchsorted(stretches.begin, begin, side="right") - 1
        within = (place >= 0) & (begin < stretches.end[place])
        if within.sum() < limits.least_requests_count or (~within).sum() < limits.least_requests_count:
            continue
        service, method, operation = names.row(int(requests.group[rows[0]]))
        for quantile in QUANTILES:
            slower, judged, worst = _signs(begin, own, within, stretches, quantile, limits)
            if judged:
                named = (service, method, operation)
                yield _Judged(host, named, quantile, slower, judged, own[within], own[~within], worst)


def _signs(
    begin: Int64Array,
    took: Int64Array,
    within: NDArray[np.bool_],
    stretches: _Stretches,
    quantile: float,
    limits: BackgroundThresholds,
) -> tuple[int, int, int]:
    """How many stretches were slower than what is beside them, of how many that differ; and the worst of them."""
    length = stretches.end - stretches.begin
    bounds = np.searchsorted(
        begin, [stretches.begin - length, stretches.begin, stretches.end, stretches.end + length], side="left"
    )
    least = max(limits.stretch_least_requests_count, round(1 / (1 - quantile)))
    enough = np.flatnonzero((bounds[2] - bounds[1] >= least) & (bounds[3] - bounds[2] + bounds[1] - bounds[0] >= least))
    differences: dict[int, float] = {}
    for stretch in enough:
        before, first, last, after = bounds[:, stretch]
        beside = np.concatenate([took[part][~within[part]] for part in (slice(before, first), slice(last, after))])
        if len(beside) >= least:
            inside = float(np.quantile(took[first:last], quantile))
            differences[int(stretch)] = inside - float(np.quantile(beside, quantile))
    slower = sum(value > 0 for value in differences.values())
    worst = max(differences, key=lambda stretch: differences[stretch], default=0)
    return slower, sum(value != 0 for value in differences.values()), worst


def _is_sound(judged: _Judged, comparisons: int, limits: BackgroundThresholds) -> bool:
    inside, outside = (float(np.quantile(each, judged.quantile)) for each in (judged.inside, judged.outside))
    is_larger = inside >= limits.slower_ratio * outside and inside - outside >= limits.slower_least_ns
    return is_larger and judged.chance * comparisons <= limits.chance_most_share


def _cost_ns(judged: _Judged) -> int:
    """By how much the requests within took longer than the median of the others."""
    return int(np.maximum(judged.inside - np.median(judged.outside), 0).sum())


def _finding(judged: _Judged, stretches: _Stretches, requests: Requests) -> Finding:
    service, method, operation = judged.requests_class
    what = f"{operation or method or 'requests'} of {service or 'its service'}"
    worked = f"{times(len(stretches.begin), 'time')}, {in_words(int((stretches.end - stretches.begin).sum()))} in all"
    slower = "the median" if judged.quantile == QUANTILES[0] else "the slowest tenth"
    return Finding(
        severity="notice",
        kind=KIND,
        host=judged.host,
        service=service or None,
        from_trace_ns=int(stretches.begin[judged.worst]),
        to_trace_ns=int(stretches.end[judged.worst]),
        count=len(judged.inside),
        cost_ns=_cost_ns(judged),
        text=(
            f"while {_workers(requests, judged.host)} at {judged.host} ({worked}), {what} took there "
            f"{_figures(judged.inside)}; otherwise {_figures(judged.outside)}; {slower} was slower than just before "
            f"and after in {judged.slower:,} of {judged.judged:,}"
        ),
        remedy="see what both use then; if it is the daemon, let it do less at once, or at other times",
    )


def _figures(took: Int64Array) -> str:
    p50, p99 = (int(np.quantile(took, share)) for share in (0.5, 0.99))
    return f"p50 {in_words(p50)}, p99 {in_words(p99)} ({times(len(took), 'request')})"


def _workers(requests: Requests, host: str) -> str:
    """Which daemons worked at a host, as their User-Agents name them."""
    at_host = requests.where((pl.col("server_host") == host) | (pl.col("client_host") == host))
    rows = requests.frame(at_host, "background", "client_service")
    names = rows.filter(pl.col("background"))["client_service"].cast(pl.String).drop_nulls().unique().sort()
    return f"{listing(names)} worked" if len(names) else "background work went on"
