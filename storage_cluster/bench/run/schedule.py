"""Requests at their planned times: which of them this process plays, when they are due, and how late they began."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from storage_cluster.bench.model import Operation, Planned, Work
from storage_cluster.bench.results.rows import Row
from storage_cluster.bench.storage import Order

LATE_PERCENTS = (50, 99, 100)


class NoNotes:
    """The source of planned orders: their outcome changes nothing."""

    def next(self) -> Order | None:
        """None: planned orders come from the plan."""
        return None

    def note_outcome(self, order: Order, succeeded: bool) -> None:
        """Ignore it."""


class Plan:
    """Gives the workers of a work its planned requests, in the order in which they are due."""

    def __init__(self, work: Work, first: int, count: int, total: int) -> None:
        """The part of the workers `first` to `first + count` of `total` workers: every request is one part's."""
        self._operations = {operation.kind: operation for operation in work.operations}
        self._planned = [each for at, each in enumerate(work.schedule) if first <= at % total < first + count]
        self._speed = work.speed
        self._left = iter(self._planned)
        self._source = NoNotes()

    def due_times(self, started: int) -> Iterator[int]:
        """When requests are due, on the monotonic clock in ns."""
        return (started + round(each.due_ns / self._speed) for each in self._planned)

    def next(self) -> tuple[Operation, NoNotes, Order]:
        """The next request."""
        each = next(self._left)
        return self._operations[each.kind], self._source, order_of(each)


def order_of(planned: Planned) -> Order:
    """A planned request as an order."""
    return Order(planned.kind, planned.container, planned.object, planned.size_bytes)


def lateness_ns(rows: Iterable[Row], works: Sequence[str]) -> list[int]:
    """How late the requests of these works began, sorted; what never began is left out."""
    first = (row for row in rows if row.work in works and row.attempt == 1 and not row.request)
    return sorted(row.waited_ns for row in first if row.duration_ns >= 0)


@dataclasses.dataclass(frozen=True)
class Lateness:
    """How late a schedule was kept."""

    count: int
    percentiles_ns: tuple[int, ...]  # as LATE_PERCENTS

    @classmethod
    def of_times(cls, late_ns: Sequence[int]) -> "Lateness | None":
        """From sorted times; None if there are none."""
        if not late_ns:
            return None
        last = len(late_ns) - 1
        return cls(len(late_ns), tuple(late_ns[round(last * percent / 100)] for percent in LATE_PERCENTS))
