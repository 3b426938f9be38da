"""Detects impossible timestamps: years away from all others of their host, because of damage to the file.

A clock that is set (a device boots in 1970, until NTP reaches it) leaves two long runs of packets, decades apart: that
is a step (`collector.clocks.steps`), and both runs are valid. Damage affects single packets. So a host's timestamps are
grouped where a year or more lies between them. If there are several groups, the largest is valid, and those whose
packets are adjacent in the capture, `RUN_LEAST` in a row on average. A packet with an invalid timestamp is treated as
if captured at the time of the packet before it (`tracer/core/wire/src/stamps.rs`), is ignored when clocks are compared,
and is counted with file and frame.

Cost: nothing for a capture of less than a year; for one that spans more, it is read twice more.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from collector.capture_files.readers import CaptureReader, open_capture
from collector.capture_files.records import Severity
from collector.trace.model import CounterInfo
from tracer.plain_text import plain

STAMPS_ABSURD = "stamps_absurd"
"""The counter of packets with such timestamps (`tracer/core/wire/src/counters.rs`)."""
FAR_NS = 366 * 86_400 * 10**9
"""Least distance between groups of timestamps; no capture lasts that long."""
BIN_NS = 30 * 86_400 * 10**9
RUN_LEAST = 8
"""Damage does not give so many consecutive packets similar timestamps."""
NAMED_FRAMES = 5

Range = tuple[int, int]


class _Stamps(Struct):
    """A host's timestamps in bins of `BIN_NS`: packets, first and last, and how often one bin follows another."""

    counts: Counter[int] = field(default_factory=Counter)
    first: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    begun: Counter[tuple[int, int]] = field(default_factory=Counter)
    """How often a packet of one bin is followed by one of another: (one, other)."""
    _before: int | None = None

    def add(self, host_ns: NDArray[np.int64]) -> None:
        """Add the next packets of the capture."""
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

    def valid_ranges(self) -> tuple[Range, ...]:
        """The first and last timestamp of each valid group, by time."""
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
    """The first and last timestamp of each valid group in a host's captures; empty if all timestamps are valid.

    Raises: `InputError` for a file that is no capture.
    """
    stamps = _Stamps()
    for path in files:
        with open_capture(path) as reader:
            for batch in reader.batches():
                if len(batch.events["host_ns"]):
                    stamps.add(batch.events["host_ns"])
    return stamps.valid_ranges()


class Absurd(Struct):
    """The invalid timestamps of a host's captures: `frames` of the host, and the first ones of each file in words."""

    count: int = 0
    frames: list[NDArray[np.uint32]] = field(default_factory=list)
    places: list[str] = field(default_factory=list)

    def note(self, path: Path, reader: CaptureReader, frames_before: int) -> None:
        """Add a file that has been read."""
        frames = reader.absurd_frames
        if not len(frames):
            return
        self.count += sum(counter.count for counter in reader.counters if counter.name == STAMPS_ABSURD)
        self.frames.append(frames + np.uint32(frames_before))
        named = ", ".join(map(str, frames[:NAMED_FRAMES].tolist()))
        self.places.append(f"{plain(path.name)} frame {named}{' …' if len(frames) > NAMED_FRAMES else ''}")

    def counter(self, host: str) -> CounterInfo | None:
        """The counter that reports them; None if there are none."""
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
"""Valid ranges by file; files without an entry have no limit."""
