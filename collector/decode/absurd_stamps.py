"""Stamps that cannot be: decades from all others of their host, by damage. The rest of the capture is worth analysing.

A clock that is set (a device boots in 1970, until NTP reaches it) leaves two long runs of packets, decades apart: that
is a step (`collector.clocks.steps`), and both are believed. Damage leaves packets here and there. So the stamps of a
host are grouped where a year or more lies between them, and of several groups those are believed whose packets stand
together in the capture, `RUN_LEAST` in a row on average, and the largest. What is not believed is taken as if captured
when the packet before it was (`tracer/core/wire/src/stamps.rs`), is left out where clocks are compared, and is counted
with file and frame.

Cost: nothing for a capture of less than a year; for one that spans more, it is read twice more.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from collector.trace.model import CounterInfo
from tracer.plain_text import plain
from tracer.readers import CaptureReader, open_capture
from tracer.records import Severity

STAMPS_ABSURD = "stamps_absurd"
"""The counter of them (`tracer/core/wire/src/counters.rs`)."""
FAR_NS = 366 * 86_400 * 10**9
"""Between groups of stamps; no capture lasts that long."""
BIN_NS = 30 * 86_400 * 10**9
RUN_LEAST = 8
"""Packets in a row that damage does not put at one time."""
NAMED_FRAMES = 5

Range = tuple[int, int]


@dataclass(slots=True)
class _Stamps:
    """How a host's stamps lie, by bins of `BIN_NS`: packets, first and last, and where one bin follows another."""

    counts: Counter[int] = field(default_factory=Counter)
    first: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    begun: Counter[tuple[int, int]] = field(default_factory=Counter)
    """Places where a packet of one bin is followed by one of another: (one, other)."""
    _before: int | None = None

    def add(self, host_ns: NDArray[np.int64]) -> None:
        """Take in the next packets of the capture."""
        bins = host_ns // BIN_NS
        for each in np.unique(bins).tolist():
            own = host_ns[bins == each]
            self.counts[each] += len(own)
            self.first[each] = min(int(own.min()), self.first.get(each, int(own.min())))
            self.last[each] = max(int(own.max()), self.last.get(each, int(own.max())))
        before = bins[0] if self._before is None else self._before
        chain = np.concatenate([[before], bins])
        turns = np.flatnonzero(np.diff(chain))
        self.begun.update(zip(chain[turns].tolist(), chain[turns + 1].tolist(), strict=True))
        self._before = int(bins[-1])

    def believed(self) -> tuple[Range, ...]:
        """First and last stamp of each group that is believed, by time."""
        groups: list[list[int]] = []
        for each in sorted(self.counts):
            if not groups or self.first[each] - self.last[groups[-1][-1]] >= FAR_NS:
                groups.append([])
            groups[-1].append(each)
        group_of = {each: number for number, bins in enumerate(groups) for each in bins}
        runs = Counter[int]()
        for (one, other), count in self.begun.items():
            runs[group_of[other]] += count * (group_of[one] != group_of[other])
        sizes = [sum(self.counts[each] for each in bins) for bins in groups]
        found = tuple(
            (self.first[bins[0]], self.last[bins[-1]])
            for number, bins in enumerate(groups)
            if sizes[number] == max(sizes) or sizes[number] >= RUN_LEAST * max(1, runs[number])
        )
        return found if len(found) < len(groups) else ()


def believed_stamps(files: Iterable[Path]) -> tuple[Range, ...]:
    """First and last of the stamps of a host's captures that are believed, for each group of them; none if all are.

    Raises: `InputError` for a file that is no capture.
    """
    stamps = _Stamps()
    for path in files:
        with open_capture(path) as reader:
            for batch in reader.batches():
                if len(batch.events["host_ns"]):
                    stamps.add(batch.events["host_ns"])
    return stamps.believed()


@dataclass(slots=True)
class Absurd:
    """What was not believed of a host's captures: `frames` of the host, and words for the first of each file."""

    count: int = 0
    frames: list[NDArray[np.uint32]] = field(default_factory=list)
    places: list[str] = field(default_factory=list)

    def note(self, path: Path, reader: CaptureReader, frames_before: int) -> None:
        """Take in a file that has been read."""
        frames = reader.absurd_frames
        if not len(frames):
            return
        self.count += sum(counter.count for counter in reader.counters if counter.name == STAMPS_ABSURD)
        self.frames.append(frames + np.uint32(frames_before))
        named = ", ".join(map(str, frames[:NAMED_FRAMES].tolist()))
        self.places.append(f"{plain(path.name)} frame {named}{' …' if len(frames) > NAMED_FRAMES else ''}")

    def counter(self, host: str) -> CounterInfo | None:
        """What is to be said of it."""
        if not self.count:
            return None
        places = "; ".join(self.places[:NAMED_FRAMES]) + ("; …" if len(self.places) > NAMED_FRAMES else "")
        remedy = (
            f"{places}: these stamps are years from the others of {host}; the packets are taken as captured when the "
            "one before was, their delays say nothing, and clocks are compared without them"
        )
        return CounterInfo(host, STAMPS_ABSURD, Severity.DATA_LOSS, self.count, remedy)

    def all_frames(self) -> NDArray[np.uint32]:
        """All frames, ascending."""
        return np.concatenate([np.empty(0, dtype=np.uint32), *self.frames])


Believed = Mapping[Path, Sequence[Range]]
"""By file; all that pcap can hold for those that are not in it."""
