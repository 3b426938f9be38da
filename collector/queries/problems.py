"""Finds the problems of a trace: packets lost, sent again, reset or not paired; findings of the report."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from collector.queries.answers import Problem
from collector.queries.tables import Tables
from collector.queries.timeline.columns import KINDS, MISSING_NS, NO_LANE, STATES, ArrowClass, Seen
from collector.queries.timeline.windows import HopIndex
from collector.services.ends import UNCAPTURED
from collector.trace.schema import HopKind, HopState

WHAT = {
    ArrowClass.RETRANSMISSION: "sent again",
    ArrowClass.LOST: "lost",
    ArrowClass.EARLY: "received before it was sent",
}
FINE = [STATES.index(HopState.MATCHED), STATES.index(HopState.OUTSIDE_WINDOW)]
"""States in which nothing failed."""


class Problems:
    """The problems of one trace, by time."""

    def __init__(self, index: HopIndex, hosts: Sequence[str], tables: Tables, start_ns: int) -> None:
        self._columns, self._pairs, self._hosts, self._start_ns = index.columns, index.pairs, hosts, start_ns
        self._findings, self._findings_ns = tables.trouble, tables.trouble_from_ns - start_ns
        self._rows = index.problem_rows
        self._times_ns = index.problem_times_ns

    def __len__(self) -> int:
        return len(self._rows) + len(self._findings_ns)

    def next(self, at_ns: int, backwards: bool) -> Problem | None:
        """The nearest problem after (or before) a time; None if there is none."""
        candidates = [*self._hop(at_ns, backwards), *self._finding(at_ns, backwards)]
        if not candidates:
            return None
        return max(candidates, key=_begin) if backwards else min(candidates, key=_begin)

    def rank(self, problem: Problem) -> int:
        """The rank of a problem by time, from 1; of several at one time, the last."""
        return sum(
            int(np.searchsorted(times, problem.from_ns, "right")) for times in (self._times_ns, self._findings_ns)
        )

    def first_among(self, rows: NDArray[np.intp]) -> Problem | None:
        """The first of these rows of the table `hops` that was lost, sent again, not paired or early."""
        columns = self._columns
        hops = np.flatnonzero(np.isin(columns.row, rows))
        early = (columns.received_ns[hops] < columns.anchor_ns[hops]) & (columns.seen[hops] == Seen.BOTH)
        unpaired = ~np.isin(columns.state[hops], FINE)
        trouble = hops[early | unpaired | (columns.carried["attempt"][hops] > 1)]
        return self._at(int(trouble[0])) if len(trouble) else None

    def _hop(self, at_ns: int, backwards: bool) -> list[Problem]:
        times = self._times_ns
        place = int(np.searchsorted(times, at_ns, side="left" if backwards else "right")) - (1 if backwards else 0)
        if not 0 <= place < len(times):
            return []
        return [self._at(int(self._rows[place]))]

    def _at(self, at: int) -> Problem:
        columns, begin_ns = self._columns, int(self._columns.anchor_ns[at])
        pair = int(columns.pair[at])
        source, target = (self._host_name(int(lane[pair])) for lane in (self._pairs.source, self._pairs.target))
        kind, state = KINDS[columns.kind[at]], STATES[columns.state[at]]
        what = WHAT.get(ArrowClass(columns.arrow_class[at]), state.replace("_", " "))
        text = f"reset, {source} → {target}" if kind is HopKind.RST else f"{kind} {what}, {source} → {target}"
        end_ns = time_or_none(columns.received_ns[at])
        return Problem(begin_ns, begin_ns if end_ns is None else end_ns, at, text)

    def _finding(self, at_ns: int, backwards: bool) -> list[Problem]:
        times = self._findings_ns
        place = int(np.searchsorted(times, at_ns, side="left" if backwards else "right")) - (1 if backwards else 0)
        if not 0 <= place < len(times):
            return []
        row = self._findings.slice(place, 1).to_pylist()[0]
        end = int(times[place]) if row["to_trace_ns"] is None else row["to_trace_ns"] - self._start_ns
        return [Problem(int(times[place]), end, None, row["text"] or row["kind"] or "finding")]

    def _host_name(self, lane: int) -> str:
        return UNCAPTURED if lane == NO_LANE else self._hosts[lane]


def _begin(problem: Problem) -> int:
    return problem.from_ns


def time_or_none(time_ns: np.int64) -> int | None:
    """The time, or None if it is unknown."""
    return None if time_ns == MISSING_NS else int(time_ns)
