"""The conditions of triggers, and whether a trace meets one.

    status:error                  a request that the viewer's search finds by these words
    PUT host:db1 >2s              all of them
    p99 of PUT > 50ms             a percentile (p50, p99.9, …), `mean` or `max` of the durations of the requests found
    p90 of requests > 1s          of all requests
    finding:server_silent         a finding of that kind (docs/diagnosis.md); a notice is none

A percentile is the duration at its nearest rank, of at least `LEAST_COUNT` requests: of fewer than a hundred, p99 is
the longest.
Source: the words are those of `collector.queries.search`.
"""

import re
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from collector.findings.kinds import OF_NAME
from collector.queries.measures import AGGREGATE, aggregate_ns
from collector.queries.search import TraceSearch, check_search
from collector.queries.search_language import WordError
from collector.queries.search_rules import UNIT_NS
from collector.queries.trace_view import TraceView
from collector.trace.durations import in_words
from tracer.errors import InputError

LEAST_COUNT = 10
"""Requests of which a percentile or a mean is taken."""
LATEST_COUNT = 1_000
"""Of the requests found, so many are looked at for one that is new, from the last one that began."""
LONGEST_CONDITION = 500
ALL_REQUESTS = "requests"
FINDING = "finding:"
_AGGREGATE = re.compile(rf"({AGGREGATE})(?=\s+of\b)")
_LIMIT = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s)")
EXAMPLES = "such as 'status:error', 'p99 of PUT > 50ms', 'finding:server_silent'"


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition. `aggregate` empty: a single request is enough; `finding` empty: it is of requests."""

    text: str
    words: str = ""
    aggregate: str = ""
    limit_ns: int = 0
    finding: str = ""


@dataclass(frozen=True, slots=True)
class Met:
    """A condition is met: why, and when it was, in ns since the trace's start; None = not of one moment."""

    reason: str
    at_ns: int | None


def parse_condition(text: str) -> Condition:
    """The condition of a text. Raises: InputError that says where what is wrong."""
    whole = text.strip()
    if not whole or len(whole) > LONGEST_CONDITION:
        raise InputError(f"a trigger's condition has 1 to {LONGEST_CONDITION} characters", f"give one {EXAMPLES}")
    if whole.startswith(FINDING):
        kind = whole.removeprefix(FINDING)
        if kind not in OF_NAME:
            raise _wrong(whole, len(FINDING), f"{kind!r} is no kind of finding", "docs/diagnosis.md lists them")
        return Condition(whole, finding=kind)
    if found := _AGGREGATE.match(whole):
        return _aggregate(whole, found)
    if found := re.match(r"\S+(?=\s+of\s)", whole):
        raise _wrong(whole, 0, f"{found[0]!r} is no percentile", "give p50 to p99.999, mean or max")
    _check_words(whole, whole, 0)
    return Condition(whole, words=whole)


def _aggregate(whole: str, found: re.Match[str]) -> Condition:
    """Of `p99 of WORDS > DURATION`."""
    rest_at = whole.index("of", found.end()) + len("of")
    words, sign, limit = whole[rest_at:].rpartition(">")
    if not sign:
        raise _wrong(whole, len(whole), "a limit is missing", "end with > and a duration: > 50ms")
    limit_at = rest_at + len(words) + 1
    duration = _LIMIT.fullmatch(limit.strip())
    if duration is None:
        raise _wrong(whole, limit_at, f"{limit.strip()!r} is no duration", "give a number and ns, us, ms or s: 50ms")
    if not words.strip():
        raise _wrong(whole, rest_at + 1, "which requests is not said", f"give words, or {ALL_REQUESTS!r} for all")
    if found[1] in ("p0", "p00"):
        raise _wrong(whole, 0, f"{found[1]!r} is no percentile", "give p50 to p99.999, mean or max")
    words = words.strip()
    if words != ALL_REQUESTS:
        _check_words(whole, words, whole.index(words, rest_at))
    limit_ns = round(float(duration[1]) * UNIT_NS[duration[2]])
    return Condition(whole, "" if words == ALL_REQUESTS else words, found[1], limit_ns)


def _check_words(whole: str, words: str, begin: int) -> None:
    """Raises: InputError for a word that can find nothing."""
    try:
        check_search(words)
    except WordError as error:
        raise _wrong(whole, begin + error.at, error.what, error.remedy) from None


def _wrong(whole: str, at: int, what: str, remedy: str) -> InputError:
    """What is wrong at a place of a condition."""
    return InputError(f"trigger {whole!r}, character {at + 1}: {what}", remedy)


def evaluate(condition: Condition, trace: TraceView, after_ns: int) -> Met | None:
    """Why a trace meets a condition; None if it does not.

    Arguments: `after_ns`, since the trace's start: a single request counts if it ended after that.
    """
    if condition.finding:
        return _finding(condition, trace)
    durations_ns = trace.request_durations_ns()
    found = TraceSearch(trace).hits(condition.words).requests if condition.words else np.arange(len(durations_ns))
    if condition.aggregate:
        return _over_limit(condition, durations_ns[found])
    for number in found[: -LATEST_COUNT - 1 : -1].tolist():
        request = trace.request(number)
        if request.end_ns > after_ns:
            return Met(f"{condition.text}: {request.title}", request.end_ns)
    return None


def _over_limit(condition: Condition, durations_ns: NDArray[np.int64]) -> Met | None:
    known = np.sort(durations_ns[durations_ns >= 0])
    if len(known) < LEAST_COUNT:
        return None
    value_ns = aggregate_ns(condition.aggregate, known)
    if value_ns <= condition.limit_ns:
        return None
    return Met(f"{condition.text}: it was {in_words(value_ns)} of {len(known):,} requests", None)


def _finding(condition: Condition, trace: TraceView) -> Met | None:
    rows = pl.DataFrame(trace.stored.read("findings", ["severity", "kind", "text"]))
    rows = rows.with_columns(pl.col(pl.Categorical).cast(pl.String))
    found = rows.filter((pl.col("kind") == condition.finding) & (pl.col("severity") != "notice"))
    return Met(f"{condition.text}: {found['text'][0]}", None) if len(found) else None
