"""Computes figures from rows, for each operation of each stage; the figures of two parts can be merged exactly.

Only counts, sums and HDR histograms (three digits) are kept, no averages. So the merged figures of two drivers are
exactly those of one driver that did everything. Percentiles are by nearest rank within the histogram's resolution
(0.1 %). An operation is all attempts at it: it fails if its last attempt does, and lasts from when it was due to the
end of its last attempt; other attempts are retries, and are counted apart.
"""

import dataclasses
import heapq
import math
from collections.abc import Iterable
from typing import NamedTuple, Self

from hdrh.histogram import HdrHistogram

from storage_cluster.bench.results.rows import Row

PERCENTILES = (50.0, 60.0, 80.0, 90.0, 95.0, 99.0, 99.9, 100.0)
SLOWEST_COUNT = 10
_LONGEST_NS = 24 * 3600 * 10**9
_SHORTEST_NS = 1
_DIGITS = 3


class Key(NamedTuple):
    """The operation, work and stage that figures describe."""

    stage: str
    work: str
    operation: str


class Slow(NamedTuple):
    """An operation that took long, or long until it failed."""

    response_ns: int
    row: Row


def in_ms(duration_ns: float | None) -> float:
    """A duration in ms; NaN if there is none."""
    return math.nan if duration_ns is None else duration_ns / 1e6


def text_ms(duration_ns: float | None, form: str = ",.2f") -> str:
    """A duration in ms as text; a dash if there is none, as where nothing went well."""
    return "–" if duration_ns is None else format(duration_ns / 1e6, form)


class Times:
    """How long something took: a histogram, and the sums that an exact average needs."""

    def __init__(self) -> None:
        self.histogram = HdrHistogram(_SHORTEST_NS, _LONGEST_NS, _DIGITS)
        self.sum_ns = 0
        self.squares = 0  # ns²
        self.min_ns = 0
        self.max_ns = 0

    @property
    def count(self) -> int:
        """Number of durations."""
        return int(self.histogram.total_count)

    @property
    def mean_ns(self) -> float | None:
        """Exact; None if there are none."""
        return self.sum_ns / self.count if self.count else None

    @property
    def deviation_ns(self) -> float:
        """The population standard deviation, as in ssbench."""
        return max(self.squares / self.count - (self.sum_ns / self.count) ** 2, 0.0) ** 0.5 if self.count else 0.0

    def add(self, duration_ns: int) -> None:
        """Add one duration."""
        self.min_ns = min(self.min_ns, duration_ns) if self.count else duration_ns
        self.max_ns = max(self.max_ns, duration_ns)
        self.histogram.record_value(min(max(duration_ns, _SHORTEST_NS), _LONGEST_NS))
        self.sum_ns += duration_ns
        self.squares += duration_ns * duration_ns

    def merge(self, other: "Times") -> None:
        """All of another's."""
        if not other.count:
            return
        self.min_ns = min(self.min_ns, other.min_ns) if self.count else other.min_ns
        self.max_ns = max(self.max_ns, other.max_ns)
        self.histogram.add(other.histogram)
        self.sum_ns += other.sum_ns
        self.squares += other.squares

    def percentile_ns(self, percent: float) -> int | None:
        """The smallest duration that `percent` % do not exceed, to 0.1 %; None if there are none."""
        if not self.count:
            return None
        rank = max(math.ceil(percent * self.count / 100 - 1e-9), 1)  # the library rounds to the nearest instead
        value = int(self.histogram.get_value_at_percentile(100 * rank / self.count))
        return min(max(value, self.min_ns), self.max_ns)

    def dump(self) -> dict[str, object]:
        """For JSON: the histogram in HdrHistogram's own interchange form."""
        return {
            "hdr": self.histogram.encode().decode("ascii"),
            "sum_ns": self.sum_ns,
            "squares": self.squares,
            "min_ns": self.min_ns,
            "max_ns": self.max_ns,
        }

    @classmethod
    def load(cls, dumped: dict) -> Self:
        """What `dump` gave."""
        made = cls()
        made.histogram.decode_and_add(dumped["hdr"])
        made.sum_ns, made.squares = dumped["sum_ns"], dumped["squares"]
        made.min_ns, made.max_ns = dumped["min_ns"], dumped["max_ns"]
        return made


@dataclasses.dataclass
class Figures:
    """One operation of a work of a stage."""

    op: str = ""  # PUT, …
    operations_count: int = 0
    failures_count: int = 0
    attempts_count: int = 0
    bytes: int = 0
    outside_count: int = 0  # operations that were done but not counted: ramp-up, ramp-down, after the end
    first_start_ns: int = 0
    last_end_ns: int = 0
    errors: dict[str, int] = dataclasses.field(default_factory=dict)  # kind (of `status`: with the code): attempts
    response: Times = dataclasses.field(default_factory=Times)  # of operations that went well
    processing: Times = dataclasses.field(default_factory=Times)
    slowest: list[Slow] = dataclasses.field(default_factory=list)  # a heap

    @property
    def successes_count(self) -> int:
        """Operations that succeeded."""
        return self.operations_count - self.failures_count

    @property
    def retries_count(self) -> int:
        """Attempts beyond the first of each operation."""
        return max(self.attempts_count - self.operations_count, 0)

    @property
    def success_ratio(self) -> float:
        """Of operations; 0 if there are none."""
        return self.successes_count / self.operations_count if self.operations_count else 0.0

    def add(self, row: Row) -> None:
        """One more attempt."""
        if not row.measured:
            self.outside_count += row.final
            return
        self.op = row.op
        self.attempts_count += 1
        due_ns = row.start_ns - row.waited_ns
        self.first_start_ns = min(self.first_start_ns or due_ns, due_ns)
        self.last_end_ns = max(self.last_end_ns, row.end_ns)
        if row.error:
            kind = f"status_{row.status}" if row.error == "status" else row.error
            self.errors[kind] = self.errors.get(kind, 0) + 1
        if row.final:
            self._add_operation(row)

    def _add_operation(self, row: Row) -> None:
        self.operations_count += 1
        response_ns = row.response_ns
        if row.error:
            self.failures_count += 1
        else:
            self.bytes += row.bytes
            self.response.add(response_ns)
            if row.first_byte_ns >= 0:  # other generators record it of some operations only
                self.processing.add(row.processing_ns)
        if len(self.slowest) < SLOWEST_COUNT:
            heapq.heappush(self.slowest, Slow(response_ns, row))
        elif response_ns > self.slowest[0].response_ns:
            heapq.heapreplace(self.slowest, Slow(response_ns, row))

    def merge(self, other: "Figures") -> None:
        """All of another's."""
        self.op = self.op or other.op
        for name in ("operations_count", "failures_count", "attempts_count", "bytes", "outside_count"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if other.attempts_count:
            self.first_start_ns = min(self.first_start_ns or other.first_start_ns, other.first_start_ns)
            self.last_end_ns = max(self.last_end_ns, other.last_end_ns)
        for kind, count in other.errors.items():
            self.errors[kind] = self.errors.get(kind, 0) + count
        self.response.merge(other.response)
        self.processing.merge(other.processing)
        self.slowest = heapq.nlargest(SLOWEST_COUNT, [*self.slowest, *other.slowest])
        heapq.heapify(self.slowest)


_COUNTS = (
    "op",
    "operations_count",
    "failures_count",
    "attempts_count",
    "bytes",
    "outside_count",
    "first_start_ns",
    "last_end_ns",
)


class Tally:
    """Figures of everything in a run, in the order in which it began."""

    def __init__(self) -> None:
        self.figures: dict[Key, Figures] = {}

    def add(self, row: Row) -> None:
        """One more attempt."""
        key = Key(row.stage, row.work, row.operation)
        found = self.figures.get(key)
        if found is None:
            found = self.figures[key] = Figures()
        found.add(row)

    def merge(self, other: "Tally") -> None:
        """All of another's."""
        for key, figures in other.figures.items():
            self.figures.setdefault(key, Figures()).merge(figures)

    def total(self, keys: Iterable[Key] | None = None) -> Figures:
        """The merged figures of some operations, or of all."""
        made = Figures()
        for key in self.figures if keys is None else keys:
            made.merge(self.figures[key])
        return made

    def stages(self) -> dict[str, list[Key]]:
        """Each stage's figures."""
        found: dict[str, list[Key]] = {}
        for key in self.figures:
            found.setdefault(key.stage, []).append(key)
        return found

    def dump(self) -> list[dict[str, object]]:
        """For JSON."""
        return [_dump(key, figures) for key, figures in self.figures.items()]

    @classmethod
    def load(cls, dumped: list[dict]) -> Self:
        """What `dump` gave."""
        made = cls()
        for part in dumped:
            made.figures[Key(part["stage"], part["work"], part["operation"])] = _load(part)
        return made


def _dump(key: Key, figures: Figures) -> dict[str, object]:
    return {
        **key._asdict(),
        **{name: getattr(figures, name) for name in _COUNTS},
        "errors": figures.errors,
        "response": figures.response.dump(),
        "processing": figures.processing.dump(),
        "slowest": [list(slow.row) for slow in sorted(figures.slowest, reverse=True)],
    }


def _load(part: dict) -> Figures:
    made = Figures(**{name: part[name] for name in _COUNTS}, errors=dict(part["errors"]))
    made.response, made.processing = Times.load(part["response"]), Times.load(part["processing"])
    rows = [Row(*cells) for cells in part["slowest"]]
    made.slowest = [Slow(row.response_ns, row) for row in rows]
    heapq.heapify(made.slowest)
    return made
