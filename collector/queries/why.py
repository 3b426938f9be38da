"""Why a request took longer than others like it: stage by stage against them, with the cause of each extra stage.

Like are those of its class (`collector.queries.request_table`) in the middle half by duration, without itself; or a
single other request; or the class in another trace. The means of their stages add up to their mean duration, so the
extra times of the stages add up to the whole extra time. How unusual a stage is, is its rank among all of the class:
the share of them in which it was shorter.

A cause is what the packets, the silences and the spans of this request show (`collector.queries.why_causes`); where
they show none, none is given.

Cost: the stages of all requests, once for each trace; the packets of this request.
"""

from collections.abc import Collection, Sequence

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


class _Others(Struct, frozen=True):
    """Those that a request is compared with: the stages of each, and of all of the class for the ranks."""

    words: str
    typical: pl.DataFrame
    every: pl.DataFrame | None
    numbers: dict[int, int]  # by trace id, of those in this trace


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
    numbers = _of_class(trace, name)
    alike = _stages_of(trace, numbers).filter(pl.col("trace_id") != _trace_id(trace, number))
    return _compare(trace, number, mine, _middle(alike, f"others of its class, {name}", numbers))


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
    typical = _own(trace, other)
    return _compare(
        trace,
        number,
        _own(trace, number),
        _Others(f"request {_label(other)}", typical, None, {_trace_id(trace, other): other}),
    )


def explain_against_trace(trace: TraceView, number: int, other: TraceView) -> Why:
    """Compare a request with its class in another trace. Raises: as `explain`."""
    mine, name = _own(trace, number), _class_of(trace, number)
    stages = _stages_of(other, _of_class(other, name))
    others = _middle(stages, f"those of its class in {other.url}, {name}", {})
    return _compare(trace, number, mine, others)


def _label(number: int) -> str:
    return f"{NUMBER}{number + 1}"


def _trace_id(trace: TraceView, number: int) -> int:
    return int(trace.trace_ids(np.array([number]))[0])


def _own(trace: TraceView, number: int) -> pl.DataFrame:
    """The stages of a request."""
    found = trace.stages().filter(pl.col("trace_id") == _trace_id(trace, number))
    if not len(found):
        root = trace.request(number)
        reason = "its end was not captured" if not root.ended else "it is no client's own"
        reason = "its client abandoned it" if root.outcome == Outcome.ABANDONED else reason
        raise InputError(f"request {_label(number)} cannot be compared: {reason}", "choose another one")
    return found


def _class_of(trace: TraceView, number: int) -> str:
    return str(trace.load.table.filter(pl.col("number") == number)["class"].item())


def _of_class(trace: TraceView, name: str) -> dict[int, int]:
    """All requests of a class that did not fail, as far as that is known: by trace id, their numbers."""
    table = trace.load.table
    numbers = table.filter((pl.col("class") == name) & (pl.col("outcome") != Outcome.FAILED))["number"].to_numpy()
    return dict(zip(trace.trace_ids(numbers).tolist(), numbers.tolist(), strict=True))


def _stages_of(trace: TraceView, numbers: Collection[int]) -> pl.DataFrame:
    """The stages of some requests, by their trace ids."""
    ids = pl.Series(list(numbers), dtype=pl.Int64)
    return trace.stages().filter(pl.col("trace_id").is_in(ids.implode()))


def _middle(alike: pl.DataFrame, words: str, numbers: dict[int, int]) -> _Others:
    """The middle half of some requests by duration."""
    took = alike.group_by("trace_id").agg(pl.col("duration_ns").sum())
    if len(took) < FEWEST_ALIKE:
        count = f"only {len(took)}" if len(took) else "none"
        raise InputError(f"there are {count} of {words}", f"{FEWEST_ALIKE} are needed; or compare with one (--against)")
    low, high = (took["duration_ns"].quantile(share, "linear") for share in (TYPICAL_FROM, TYPICAL_TO))
    within = took.filter(pl.col("duration_ns").is_between(low, high))
    return _Others(words, alike.join(within, on="trace_id", how="semi"), alike, numbers)


def _compare(trace: TraceView, number: int, mine: pl.DataFrame, others: _Others) -> Why:
    every = others.typical if others.every is None else others.every
    mine, typical, every = merge_directions_alike((mine, others.typical, every))
    typical_count, every_count = (group["trace_id"].n_unique() for group in (typical, every))
    took = dict(mine.group_by("stage").agg(pl.col("duration_ns").sum()).cast({"stage": pl.String}).rows())
    usual = dict(typical.group_by("stage").agg(pl.col("duration_ns").sum()).cast({"stage": pl.String}).rows())
    usual = {stage: duration_ns / typical_count for stage, duration_ns in usual.items()}
    durations = every.group_by("trace_id").agg(pl.col("duration_ns").sum())["duration_ns"].to_numpy()
    root, *calls = trace.spans(number)
    spans = (root, *calls)
    stages = []
    for stage in {*took, *usual}:
        duration_ns, usual_ns = took.get(stage, 0), round(usual.get(stage, 0))
        of_others = every.filter(pl.col("stage") == stage)["duration_ns"].to_numpy()
        parts = _parts(stage, spans)
        is_explained = duration_ns - usual_ns >= EXPLAINED_SHARE * sum(took.values())
        stages.append(
            StageOfRequest(
                stage=stage,
                duration_ns=duration_ns,
                usual_ns=usual_ns,
                shorter_share=None if others.every is None else _shorter_share(duration_ns, of_others, every_count),
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
        shorter_share=None if others.every is None else _shorter_share(duration_ns, durations, every_count),
        against=others.words,
        alike_count=every_count,
        typical=_nearest(others, round(sum(usual.values()))),
        stages=tuple(sorted(stages, key=lambda each: (-each.extra_ns, each.stage))),
        said=Annotations(trace).of_request(number),
    )


def _nearest(others: _Others, usual_ns: int) -> int | None:
    """The number (from 1) of the typical one whose duration is nearest; the first of those that are as near."""
    took = others.typical.group_by("trace_id").agg(pl.col("duration_ns").sum())
    known = [
        (abs(duration_ns - usual_ns), others.numbers[each])
        for each, duration_ns in took.rows()
        if each in others.numbers
    ]
    return min(known)[1] + 1 if known else None


def _where(parts: Sequence[Part]) -> tuple[Where, ...]:
    found: dict[int, Where] = {}
    for span, _, duration_ns in parts:
        known = found.get(span.number)
        before_ns = 0 if known is None else known.duration_ns
        found[span.number] = Where(span.number, end_name(span.server), span.title, before_ns + duration_ns)
    return tuple(sorted(found.values(), key=lambda each: -each.duration_ns))


def _shorter_share(duration_ns: int, others_ns: NDArray[np.int64], count: int) -> float:
    """In which share of `count` others something was shorter; those without a duration had none of it."""
    without = count - len(others_ns) if duration_ns > 0 else 0
    return float((others_ns < duration_ns).sum() + without) / count


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
