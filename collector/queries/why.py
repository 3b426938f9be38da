"""Why a request took longer than others like it: stage by stage against them, with the cause of each extra stage.

Like are those of its class (`collector.queries.request_table`) in the middle half by duration, without itself; or a
single other request; or the class in another trace. The means of their stages add up to their mean duration, so the
extra times of the stages add up to the whole extra time. How unusual a stage is, is its rank among all of the class:
the share of them in which it was shorter.

A cause is what the packets, the silences and the spans of this request show (`collector.queries.why_causes`); where
they show none, none is given.

Cost: three passes over the stages of all requests (`TraceView.stage_parts`), and the packets of this request. Memory:
a part of these, and 24 bytes for each request of the class.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from collector.annotations.agreement import Said
from collector.queries.annotations import Annotations
from collector.queries.span_trees import Span
from collector.queries.trace_view import TraceView
from collector.queries.why_causes import Cause, Part, causes_of
from collector.reporting.comparison import TYPICAL_FROM, TYPICAL_TO
from collector.reporting.stage_times import merge_directions_alike, merged_stage_name, stage_name
from collector.requests.outcomes import Outcome
from collector.requests.spans import LEDGER_COLUMNS
from collector.services.ends import end_name
from collector.trace.time_columns import Int64Array
from tracer.errors import InputError

FEWEST_ALIKE = 5
"""With fewer others a class has no middle half to compare with."""
EXPLAINED_SHARE = 0.05
"""Stages with at least this share of the request's duration in addition to the usual are explained."""
LEAST_SHOWN_SHARE, MOST_PLACES = 0.02, 2
"""A view shows stages that differ by this share of the request's duration, and of each so many spans."""
NETWORK = ("request_network_ns", "response_network_ns")
SLOWEST, NUMBER = "slowest", "#"
MOST_TRIED = 100
"""So many of the slowest requests may have no class to compare with."""


class Where(Struct, frozen=True):
    """A span that has a part of a stage."""

    number: int  # as `Span.number`
    host: str  # of its server, in words if that is not captured
    title: str
    duration_ns: int


class StageOfRequest(Struct, frozen=True):
    """A stage of a request against the same stage of those that it is compared with."""

    stage: str
    duration_ns: int
    usual_ns: int  # their mean
    shorter_share: float | None  # in which share of all of the class it was shorter; None without a class
    where: tuple[Where, ...]  # largest part first
    causes: tuple[Cause, ...]

    @property
    def extra_ns(self) -> int:
        """How much longer it took than usual."""
        return self.duration_ns - self.usual_ns


class Why(Struct, frozen=True):
    """A request against others. The extra times of its stages add up to its own (rounded)."""

    number: int  # from 1, as the pages show it
    title: str
    service: str
    transaction_id: str
    duration_ns: int
    usual_ns: int  # the mean duration of those that it is compared with
    shorter_share: float | None  # in which share of its class the whole was shorter
    against: str  # in words, what it is compared with
    alike_count: int  # how many these are
    typical: int | None  # from 1, the request of this trace that is nearest to the usual duration
    stages: tuple[StageOfRequest, ...]  # the largest extra time first
    said: tuple[Said, ...] = ()  # what logs and other tracers say of it

    @property
    def extra_ns(self) -> int:
        """How much longer it took than usual."""
        return self.duration_ns - self.usual_ns

    @property
    def large(self) -> tuple[StageOfRequest, ...]:
        """The stages that differ by `LEAST_SHOWN_SHARE` of its duration or more; a view adds up the others."""
        return tuple(each for each in self.stages if abs(each.extra_ns) >= LEAST_SHOWN_SHARE * max(self.duration_ns, 1))

    @property
    def small(self) -> tuple[StageOfRequest, ...]:
        """The others."""
        return tuple(each for each in self.stages if each not in self.large)

    @property
    def small_words(self) -> str:
        """What a view calls those."""
        return "1 other stage" if len(self.small) == 1 else f"{len(self.small)} other stages together"


class _Requests(Struct, frozen=True):
    """Some requests: their ids in ascending order, and arrays with an element for each."""

    trace_id: Int64Array
    number: Int64Array  # in the trace that is explained; none of another trace's
    took_ns: Int64Array

    def some(self, chosen: NDArray[np.bool_]) -> "_Requests":
        """Those that are chosen."""
        return _Requests(self.trace_id[chosen], self.number[chosen], self.took_ns[chosen])


class _Others(Struct, frozen=True):
    """Those that a request is compared with, and all of the class for the ranks."""

    words: str
    typical: _Requests
    every: _Requests | None


def find_request(trace: TraceView, words: str) -> int:
    """The number (from 0) of the request that `words` mean: `slowest`, `#12` (from 1, as the pages show it), or a
    transaction id. Raises: `InputError` if there is none.
    """
    if words == SLOWEST:
        slowest = trace.requests(1)
        if not slowest:
            raise InputError(f"{trace.url} has no request of a client", "")
        return slowest[0].number
    if words.startswith(NUMBER):
        number = int(words[1:]) - 1 if words[1:].isdecimal() else -1
        if not trace.has_request(number):
            raise InputError(f"there is no request {words}", "the pages show the number of each")
        return number
    found = trace.request_of(words)
    if found is None:
        raise InputError(f"there is no request {words}", "give a transaction id, a number (#12) or `slowest`")
    return found


def explain(trace: TraceView, number: int) -> Why:
    """Compare a request with its class. Raises: `InputError` if that cannot be done, with the reason."""
    mine, name = _own(trace, number), _class_of(trace, number)
    alike = _of_class(trace, name, but=number)
    return _compare(trace, number, mine, trace, _middle(alike, f"others of its class, {name}"))


def explain_slowest(trace: TraceView) -> Why:
    """Compare the slowest request that has a class to compare with. Raises: as `explain`."""
    refused = InputError(f"{trace.url} has no request of a client", "")
    for request in trace.requests(MOST_TRIED):
        try:
            return explain(trace, request.number)
        except InputError as error:
            refused = error
    raise refused


def explain_against_request(trace: TraceView, number: int, other: int) -> Why:
    """Compare a request with another one of the same trace. Raises: as `explain`."""
    took_ns = _own(trace, other)["duration_ns"].sum()
    typical = _Requests(trace.trace_ids(np.array([other])), np.array([other]), np.array([took_ns]))
    return _compare(trace, number, _own(trace, number), trace, _Others(f"request {_label(other)}", typical, None))


def explain_against_trace(trace: TraceView, number: int, other: TraceView) -> Why:
    """Compare a request with its class in another trace. Raises: as `explain`."""
    mine, name = _own(trace, number), _class_of(trace, number)
    others = _middle(_of_class(other, name), f"those of its class in {other.url}, {name}")
    return _compare(trace, number, mine, other, others)


def _label(number: int) -> str:
    return f"{NUMBER}{number + 1}"


def _trace_id(trace: TraceView, number: int) -> int:
    return int(trace.trace_ids(np.array([number]))[0])


def _own(trace: TraceView, number: int) -> pl.DataFrame:
    """The stages of a request."""
    is_mine = pl.col("trace_id") == _trace_id(trace, number)
    found = trace.read_unchanged(lambda: pl.concat(part.filter(is_mine) for part in trace.stage_parts()))
    if not len(found):
        root = trace.request(number)
        reason = "its end was not captured" if not root.ended else "it is no client's own"
        reason = "its client abandoned it" if root.outcome == Outcome.ABANDONED else reason
        raise InputError(f"request {_label(number)} cannot be compared: {reason}", "choose another one")
    return found


def _class_of(trace: TraceView, number: int) -> str:
    return str(trace.load.table["class"][number])


def _of_class(trace: TraceView, name: str, but: int | None = None) -> _Requests:
    """All requests of a class, but one, that did not fail and whose duration is known, as far as that is known."""
    is_alike = (pl.col("class") == name) & (pl.col("outcome") != Outcome.FAILED)
    numbers = trace.load.table.lazy().filter(is_alike).select("number").collect()["number"].to_numpy()
    numbers = numbers[numbers != but] if but is not None else numbers
    ids = trace.trace_ids(numbers)
    order = np.argsort(ids)
    ids, numbers = ids[order], numbers[order]

    def durations_ns() -> Int64Array:
        found = np.zeros(len(ids), np.int64)
        for part in trace.stage_parts():
            took = part.group_by("trace_id").agg(pl.col("duration_ns").sum())
            mine = took.filter(pl.Series(_is_among(ids, took["trace_id"].to_numpy())))
            found[np.searchsorted(ids, mine["trace_id"].to_numpy())] = mine["duration_ns"].to_numpy()
        return found

    took_ns = trace.read_unchanged(durations_ns)
    return _Requests(ids, numbers, took_ns).some(took_ns > 0)


def _is_among(ids: Int64Array, values: Int64Array) -> NDArray[np.bool_]:
    """Whether each value is one of the ids, which ascend."""
    if not len(ids):
        return np.zeros(len(values), np.bool_)
    return np.asarray(ids[np.minimum(np.searchsorted(ids, values), len(ids) - 1)] == values)


def _middle(alike: _Requests, words: str) -> _Others:
    """The middle half of some requests by duration."""
    if len(alike.trace_id) < FEWEST_ALIKE:
        count = f"only {len(alike.trace_id)}" if len(alike.trace_id) else "none"
        raise InputError(f"there are {count} of {words}", f"{FEWEST_ALIKE} are needed; or compare with one (--against)")
    took = pl.Series(alike.took_ns)
    low, high = (took.quantile(share, "linear") for share in (TYPICAL_FROM, TYPICAL_TO))
    return _Others(words, alike.some(took.is_between(low, high).to_numpy()), alike)


class _Sums(Struct):
    """What others spent on each stage, and how many of them spent less on it than one request did."""

    mine: pl.DataFrame  # the stages of that request
    usual_ns: Counter[str]  # by stage, of the typical ones together
    with_it: Counter[str]  # how many of all of the class have the stage
    shorter: Counter[str]  # of how many of these it was shorter

    def add(self, part: pl.DataFrame, others: _Others) -> None:
        """Add the stages of some requests of a trace."""
        every = others.typical if others.every is None else others.every
        rows = part.filter(pl.Series(_is_among(every.trace_id, part["trace_id"].to_numpy())))
        self.mine, rows = merge_directions_alike((self.mine, rows))
        is_typical = pl.Series(_is_among(others.typical.trace_id, rows["trace_id"].to_numpy()))
        self.usual_ns.update(_by_stage(rows.filter(is_typical)))
        own = rows.join(self.mine.select("stage", own="duration_ns"), on="stage")
        counts = own.group_by("stage").agg(pl.len(), shorter=(pl.col("duration_ns") < pl.col("own")).sum())
        for stage, count, shorter in counts.iter_rows():
            self.with_it[stage] += count
            self.shorter[stage] += shorter

    def shorter_share(self, stage: str, count: int) -> float:
        """In which share of `count` others the stage was shorter; those without it had none of it."""
        without = count - self.with_it[stage] if stage in self.mine["stage"] else 0
        return (self.shorter[stage] + without) / count


def _by_stage(rows: pl.DataFrame) -> dict[str, int]:
    return dict(rows.group_by("stage").agg(pl.col("duration_ns").sum()).cast({"stage": pl.String}).rows())


def _compare(trace: TraceView, number: int, mine: pl.DataFrame, other: TraceView, others: _Others) -> Why:
    """Compare a request with those of the same or another trace."""

    def add_up() -> _Sums:
        sums = _Sums(mine, Counter(), Counter(), Counter())
        for part in other.stage_parts():
            sums.add(part, others)
        return sums

    sums = other.read_unchanged(add_up)
    took = _by_stage(sums.mine)
    usual = {stage: duration_ns / len(others.typical.trace_id) for stage, duration_ns in sums.usual_ns.items()}
    every = others.typical if others.every is None else others.every
    every_count = len(every.trace_id)
    root, *calls = trace.spans(number)
    spans = (root, *calls)
    stages = []
    for stage in {*took, *usual}:
        duration_ns, usual_ns = took.get(stage, 0), round(usual.get(stage, 0))
        parts = _parts(stage, spans)
        is_explained = duration_ns - usual_ns >= EXPLAINED_SHARE * sum(took.values())
        stages.append(
            StageOfRequest(
                stage=stage,
                duration_ns=duration_ns,
                usual_ns=usual_ns,
                shorter_share=None if others.every is None else sums.shorter_share(stage, every_count),
                where=_where(parts),
                causes=causes_of(trace, number, spans, parts, duration_ns - usual_ns) if is_explained else (),
            )
        )
    duration_ns = sum(took.values())
    return Why(
        number=number + 1,
        title=root.title,
        service=root.service,
        transaction_id=root.transaction_id,
        duration_ns=duration_ns,
        usual_ns=round(sum(usual.values())),
        shorter_share=None if others.every is None else float((every.took_ns < duration_ns).sum()) / every_count,
        against=others.words,
        alike_count=every_count,
        typical=_nearest(others.typical, round(sum(usual.values()))) if other is trace else None,
        stages=tuple(sorted(stages, key=lambda each: (-each.extra_ns, each.stage))),
        said=Annotations(trace).of_request(number),
    )


def _nearest(typical: _Requests, usual_ns: int) -> int:
    """The number (from 1) of the typical one whose duration is nearest; the first of those that are as near."""
    nearest = np.lexsort((typical.number, np.abs(typical.took_ns - usual_ns)))[0]
    return int(typical.number[nearest]) + 1


def _where(parts: Sequence[Part]) -> tuple[Where, ...]:
    found: dict[int, Where] = {}
    for span, _, duration_ns in parts:
        known = found.get(span.number)
        before_ns = 0 if known is None else known.duration_ns
        found[span.number] = Where(span.number, end_name(span.server), span.title, before_ns + duration_ns)
    return tuple(sorted(found.values(), key=lambda each: -each.duration_ns))


def _parts(stage: str, spans: Sequence[Span]) -> list[Part]:
    """The spans that have a part of a stage, with the ledger's column and the part (ns); the largest first."""
    found = []
    for span in spans:
        for column in LEDGER_COLUMNS:
            duration_ns = getattr(span, column)
            names = {stage_name(column, span.service, is_root=span.depth == 0)}
            if column in NETWORK and span.depth == 0:
                names.add(merged_stage_name(span.service))
            if duration_ns > 0 and stage in names:
                found.append((span, column, duration_ns))
    return sorted(found, key=lambda part: -part[2])
