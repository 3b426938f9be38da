"""What captures themselves show of when they captured: their files, the times without a packet, the points passed.

`collector.hops.coverage` makes intervals of it, with what other hosts saw.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

Span = tuple[int, int]
"""From and to, in ns, both within."""
AddressPair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class FileSpan:
    """A capture file of one or more points: its first and last stamp, and when its agent says that it began."""

    from_ns: int
    to_ns: int
    since_ns: int | None = None


@dataclass(frozen=True, slots=True)
class DropSpan:
    """A time between two statistics of a capture in which it dropped packets: stamps of its host, ns."""

    from_ns: int
    to_ns: int
    count: int


@dataclass(frozen=True, slots=True)
class PointActivity:
    """What one point's capture shows of when it captured; all times are stamps of its host, in ns.

    `files` that describe it, in their order; `silences`, longer times without a packet between two of its packets;
    `span`, its first and last packet, None if it saw none; `drops`, by its own statistics, ascending.
    """

    files: tuple[FileSpan, ...]
    silences: tuple[Span, ...] = ()
    span: Span | None = None
    drops: tuple[DropSpan, ...] = ()


@dataclass(frozen=True, slots=True)
class HostActivity:
    """The activity of a host's points, and which of them (places in `points`) packets between two addresses passed."""

    points: tuple[PointActivity, ...] = ()
    passed: Mapping[AddressPair, frozenset[int]] = field(default_factory=dict)

    def points_of(self, pair: AddressPair) -> frozenset[int]:
        """The points where packets between two addresses are seen; all where none was seen."""
        here = self.passed.get(pair) or self.passed.get(pair[::-1])
        return here or frozenset(range(len(self.points)))
