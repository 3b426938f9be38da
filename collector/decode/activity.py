"""When captures captured, as far as they show it themselves: their files, silences, and the points that packets passed.

`collector.hops.coverage` computes intervals from it, together with what other hosts saw.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

Span = tuple[int, int]
"""From and to, in ns, both within."""
AddressPair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class FileSpan:
    """A capture file of one or more points: its first and last timestamp, and its beginning if its agent states it."""

    from_ns: int
    to_ns: int
    since_ns: int | None = None
    after_gap: bool = False  # the segment before it, of the same agent, is not here


@dataclass(frozen=True, slots=True)
class DropSpan:
    """An interval between two statistics of a capture in which it dropped packets, in its host's time (ns)."""

    from_ns: int
    to_ns: int
    count: int


@dataclass(frozen=True, slots=True)
class PointActivity:
    """When one point captured, as far as its capture shows; all times are its host's (ns).

    `files` that describe it, in their order; `silences`, longer times without a packet between two of its packets;
    `span`, its first and last packet, None without packets; `drops`, from its own statistics, ascending.
    """

    files: tuple[FileSpan, ...]
    silences: tuple[Span, ...] = ()
    span: Span | None = None
    drops: tuple[DropSpan, ...] = ()


@dataclass(frozen=True, slots=True)
class HostActivity:
    """The activity of a host's points, and which of them (indices in `points`) packets between two addresses passed; of
    one point that is not noted."""

    points: tuple[PointActivity, ...] = ()
    passed: Mapping[AddressPair, frozenset[int]] = field(default_factory=dict)

    def points_of(self, pair: AddressPair) -> frozenset[int]:
        """The points that packets between two addresses pass; all points if none was seen."""
        here = self.passed.get(pair) or self.passed.get(pair[::-1])
        return here or frozenset(range(len(self.points)))
