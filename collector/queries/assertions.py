"""Assertions about a trace, as a gate for CI: what must hold, and whether it does.

    p99(PUT) < 50ms                a percentile, `mean` or `max` of the durations of the requests that words find
    requests(host:db1) >= 100      how many requests words find; `requests` alone: all
    failed(PUT) < 1%               how many of them failed, or which share; likewise `abandoned`
    lost == 0                      packets in a state (lost, unmatched, ambiguous, …), sent again (`retransmitted`), or
                                   their share of all: lost < 0.1%
    finding(server_silent) == 0    findings of a kind, but for notices; `findings`: of any kind
    counter(capture_dropped) == 0  a count of the captures or of the analysis, of all hosts together

Assertions are separated by `;` or stand on lines; what follows `#` is a comment. One of durations of which there are
none fails: that nothing was slow is only known of requests that were seen.
Source: the words are those of `collector.queries.search`.
"""

import operator
import re
from collections.abc import Callable, Iterator

import numpy as np
import polars as pl
from msgspec import Struct

from collector.findings.kinds import OF_NAME
from collector.queries.measures import AGGREGATE, aggregate_ns
from collector.queries.search import TraceSearch, check_search
from collector.queries.search_language import WordError
from collector.queries.search_rules import UNIT_NS
from collector.queries.trace_view import TraceView
from collector.trace.durations import in_words
from collector.trace.schema import HopState
from tracer.errors import InputError

SIGNS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
OF_REQUESTS = {"requests": "", "failed": "outcome:failed", "abandoned": "outcome:abandoned"}
OF_PACKETS = {str(state): f"{state}_count" for state in HopState} | {"retransmitted": "retransmitted_count"}
NOTICES = ("notice", "info")
_RULE = re.compile(
    r"(?P<name>[A-Za-z_][A-Za-z_0-9.]*)\s*(?:\((?P<words>.*)\))?\s*(?P<sign>[<>=!]=|[<>])\s*(?P<limit>\S+)"
)
_DURATION = re.compile(rf"({AGGREGATE})")
_LIMIT = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|%)?")
EXAMPLE = "write such as 'p99(PUT) < 50ms; lost == 0; finding(server_silent) == 0'"


class Assertion(Struct, frozen=True):
    """What must hold. `limit` in ns of a duration, in percent of a share, else a count."""

    text: str
    name: str
    words: str
    sign: str
    limit: float
    unit: str


class Verdict(Struct, frozen=True):
    """Whether an assertion holds, and what was found, in words."""

    assertion: Assertion
    holds: bool
    found: str


def parse_assertions(text: str) -> list[Assertion]:
    """The assertions of a text. Raises: InputError that says which one is wrong, and why; also without any."""
    found = list(_parse(text))
    if not found:
        raise InputError("there is no assertion", EXAMPLE)
    return found


def _parse(text: str) -> Iterator[Assertion]:
    for line in text.splitlines():
        for rule in line.partition("#")[0].split(";"):
            if rule.strip():
                yield _parse_one(rule.strip())


def _parse_one(text: str) -> Assertion:
    found = _RULE.fullmatch(text)
    if found is None:
        raise _wrong(text, "it is no comparison", EXAMPLE)
    name, words, limit = found["name"], (found["words"] or "").strip(), _LIMIT.fullmatch(found["limit"])
    if limit is None:
        raise _wrong(text, f"{found['limit']!r} is no number", "give one, or one with ns, us, ms, s or %")
    unit = limit[2] or ""
    is_duration = _DURATION.fullmatch(name) is not None
    if is_duration != (unit in UNIT_NS):
        of = "a duration" if is_duration else "a count, or a share in %"
        raise _wrong(text, f"{name} is {of}", f"give a limit with {', '.join(UNIT_NS)}" if is_duration else "")
    if name not in OF_PACKETS and unit == "%" and name not in ("failed", "abandoned"):
        raise _wrong(text, f"{name} is no share", "give a count")
    _check(text, name, words, has_words=found["words"] is not None, is_duration=is_duration)
    return Assertion(text, name, words, found["sign"], float(limit[1]) * UNIT_NS.get(unit, 1), unit)


def _check(text: str, name: str, words: str, *, has_words: bool, is_duration: bool) -> None:
    """Raises: InputError for a measure that there is not."""
    if is_duration or name in OF_REQUESTS:
        try:
            if words:
                check_search(words)
        except WordError as error:
            raise _wrong(text, error.what, error.remedy) from None
    elif name == "finding":
        if words not in OF_NAME:
            raise _wrong(text, f"{words!r} is no kind of finding", "docs/diagnosis.md lists them")
    elif name == "counter":
        if not words:
            raise _wrong(text, "which counter is not said", "docs/decoding.md lists them")
    elif name not in (*OF_PACKETS, "findings"):
        known = ["p99", "mean", "max", *OF_REQUESTS, *OF_PACKETS, "finding", "findings", "counter"]
        raise _wrong(text, f"{name!r} is no measure", f"there are: {', '.join(known)}")
    elif has_words:
        raise _wrong(text, f"{name} is of the whole trace", f"leave out the words: {name} == 0")


def _wrong(text: str, what: str, remedy: str) -> InputError:
    return InputError(f"assertion {text!r}: {what}", remedy)


def evaluate(assertion: Assertion, trace: TraceView) -> Verdict:
    """Whether an assertion holds for a trace."""
    if assertion.unit in UNIT_NS:
        return _of_durations(assertion, trace)
    if assertion.name in OF_REQUESTS:
        count, of = _requests(trace, assertion.words, OF_REQUESTS[assertion.name]), _requests(trace, assertion.words)
        return _of_count(assertion, count, of, "requests")
    if assertion.name in OF_PACKETS:
        count, of = _hops(trace, OF_PACKETS[assertion.name])
        return _of_count(assertion, count, of, "packets")
    if assertion.name == "counter":
        counters = trace.stored.info().counters
        return _of_count(assertion, sum(each.count for each in counters if each.name == assertion.words))
    return _of_count(assertion, _findings(trace, assertion.words))


def _of_durations(assertion: Assertion, trace: TraceView) -> Verdict:
    durations_ns = trace.request_durations_ns()
    if assertion.words:
        durations_ns = durations_ns[TraceSearch(trace).hits(assertion.words).requests]
    known = np.sort(durations_ns[durations_ns >= 0])
    if not len(known):
        return Verdict(assertion, holds=False, found="there are no such requests")
    value_ns = aggregate_ns(assertion.name, known)
    return Verdict(assertion, _holds(assertion, value_ns), f"{in_words(value_ns)} of {len(known):,} requests")


def _of_count(assertion: Assertion, count: int, of: int = 0, what: str = "") -> Verdict:
    words = f"{count:,}" + (f" of {of:,} {what}" if of else "")
    if assertion.unit != "%":
        return Verdict(assertion, _holds(assertion, count), words)
    if not of:
        return Verdict(assertion, holds=False, found=f"there are no such {what}")
    return Verdict(assertion, _holds(assertion, 100 * count / of), f"{100 * count / of:.3g} %: {words}")


def _holds(assertion: Assertion, value: float) -> bool:
    return SIGNS[assertion.sign](value, assertion.limit)


def _requests(trace: TraceView, *words: str) -> int:
    query = " ".join(f"({each})" for each in words if each)
    return len(TraceSearch(trace).hits(query).requests) if query else len(trace.request_durations_ns())


def _hops(trace: TraceView, column: str) -> tuple[int, int]:
    """The sum of a column of `quality`, and of the hops in all states."""
    states = [f"{state}_count" for state in HopState]
    sums = pl.DataFrame(trace.stored.read("quality", list(dict.fromkeys([*states, column])))).sum()
    return int(sums[column].item()), int(sum(sums[state].item() for state in states))


def _findings(trace: TraceView, kind: str) -> int:
    rows = pl.DataFrame(trace.stored.read("findings", ["severity", "kind"])).cast(pl.String)
    found = rows.filter(~pl.col("severity").is_in(NOTICES))
    return len(found.filter(pl.col("kind") == kind) if kind else found)
