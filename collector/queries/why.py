"""Why a request took longer than others like it: stage by stage against them, with the cause of each extra stage.

Like are those of its class (`collector.queries.request_table`) in the middle half by duration, without itself; or a
single other request; or the class in another trace. The means of their stages add up to their mean duration, so the
extra times of the stages add up to the whole extra time. How unusual a stage is, is its rank among all of the class:
the share of them in which it was shorter.

A cause is what the packets, the silences and the spans of this request show (`collector.queries.why_causes`); where
they show none, none is given.

Cost: a pass over the stages of all requests for the first question (`TraceView.stage_columns`); then over their
columns of numbers, and the packets of this request. Memory: 40 bytes for each request while a question is answered.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl
from msgspec import Struct

from collector.annotations.agreement import Said
from collector.queries.annotations import Annotations
from collector.queries.span_trees import Span
from collector.queries.stage_columns import Mask, Stage, StageColumns
from collector.queries.trace_view import TraceView
from collector.queries.why_causes import Cause, Part, causes_of
from collector.reporting.comparison import TYPICAL_FROM, TYPICAL_TO
from collector.reporting.stage_times import merged_names, merged_stage_name, stage_name
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
    """Those that a request is compared with, and all of the class for the ranks, as masks of rows of `stages`."""

    words: str
    stages: StageColumns
    typical: Mask
    every: Mask | None


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
    return _compare(trace, number, mine, trace, _middle(trace, alike, f"others of its class, {name}"))


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
    _own(trace, other)
    typical = trace.numbers_of_stages == other
    others = _Others(f"request {_label(other)}", trace.stage_columns, typical, None)
    return _compare(trace, number, _own(trace, number), trace, others)


def explain_against_trace(trace: TraceView, number: int, other: TraceView) -> Why:
    """Compare a request with its class in another trace. Raises: as `explain`."""
    mine, name = _own(trace, number), _class_of(trace, number)
    others = _middle(other, _of_class(other, name), f"those of its class in {other.url}, {name}")
    return _compare(trace, number, mine, other, others)


def _label(number: int) -> str:
    return f"{NUMBER}{number + 1}"


def _own(trace: TraceView, number: int) -> dict[str, int]:
    """What a request spent on each of its stages, ns."""
    rows = np.flatnonzero(trace.numbers_of_stages == number)
    found = trace.stage_columns.of_request(int(rows[0])) if len(rows) else {}
    if not found:
        root = trace.request(number)
        reason = "its end was not captured" if not root.ended else "it is no client's own"
        reason = "its client abandoned it" if root.outcome == Outcome.ABANDONED else reason
        raise InputError(f"request {_label(number)} cannot be compared: {reason}", "choose another one")
    return found


def _class_of(trace: TraceView, number: int) -> str:
    return str(trace.load.table["class"][number])


def _of_class(trace: TraceView, name: str, but: int | None = None) -> Mask:
    """All requests of a class, but one, that did not fail and whose duration is known, as far as that is known."""
    is_alike = (pl.col("class") == name) & (pl.col("outcome") != Outcome.FAILED)
    alike = np.append(trace.load.table.select(is_alike).to_series().to_numpy(), np.False_)  # -1 is the last
    if but is not None:
        alike[but] = False
    return np.asarray(alike[trace.numbers_of_stages] & (trace.stage_columns.took_ns > 0))


def _middle(trace: TraceView, alike: Mask, words: str) -> _Others:
    """The middle half of some requests by duration."""
    stages, count = trace.stage_columns, int(alike.sum())
    if count < FEWEST_ALIKE:
        found = f"only {count}" if count else "none"
        raise InputError(f"there are {found} of {words}", f"{FEWEST_ALIKE} are needed; or compare with one (--against)")
    took = pl.Series(stages.took_ns[alike])
    low, high = (took.quantile(share, "linear") or 0.0 for share in (TYPICAL_FROM, TYPICAL_TO))
    return _Others(words, stages, alike & (stages.took_ns >= low) & (stages.took_ns <= high), alike)


def _shorter_share(stage: Stage | None, every: Mask, mine_ns: int) -> float:
    """In which share of others a stage was shorter; those without it had none of it."""
    count = int(every.sum())
    spent = np.zeros(0, np.int64) if stage is None else stage.among(every)
    without = count - len(spent) if mine_ns else 0
    return (int((spent < mine_ns).sum()) + without) / count


def _compare(trace: TraceView, number: int, mine: dict[str, int], other: TraceView, others: _Others) -> Why:
    """Compare a request with those of the same or another trace."""
    theirs = others.stages.merge(merged_names(others.stages.stages, mine))
    took = _merge(mine, merged_names(mine, theirs.stages))
    typical_count = int(others.typical.sum())
    usual = {name: int(stage.among(others.typical).sum()) / typical_count for name, stage in theirs.stages.items()}
    usual = {name: mean for name, mean in usual.items() if mean}
    every = others.typical if others.every is None else others.every
    every_count = int(every.sum())
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
                shorter_share=None
                if others.every is None
                else _shorter_share(theirs.stages.get(stage), others.every, duration_ns),
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
        shorter_share=None
        if others.every is None
        else float((theirs.took_ns[every] < duration_ns).sum()) / every_count,
        against=others.words,
        alike_count=every_count,
        typical=_nearest(trace, others, round(sum(usual.values()))) if other is trace else None,
        stages=tuple(sorted(stages, key=lambda each: (-each.extra_ns, each.stage))),
        said=Annotations(trace).of_request(number),
    )


def _merge(stages: dict[str, int], names: dict[str, str]) -> dict[str, int]:
    """Stages with some of them under other names; those under one name are added up."""
    merged: dict[str, int] = {}
    for name, duration_ns in stages.items():
        merged[names.get(name, name)] = merged.get(names.get(name, name), 0) + duration_ns
    return merged


def _nearest(trace: TraceView, others: _Others, usual_ns: int) -> int:
    """The number (from 1) of the typical one whose duration is nearest; the first of those that are as near."""
    off_ns = np.abs(others.stages.took_ns[others.typical] - usual_ns)
    nearest = trace.numbers_of_stages[others.typical][off_ns == off_ns.min()]
    return int(nearest.min()) + 1


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
