"""What hops show of clocks: for each pair of hosts and direction, the stamps at both ends.

Few of many hops matter: those with the least delay for their time. A hop above the lower hull of (time, delay) bounds
no line that the hull does not bound, so evidence from many partitions is thinned to hulls, one for each of
`SPANS` stretches of the sender's capture (a step ends a line, so hulls must not reach across the whole).

Limits: from thinned evidence, the place of a step is known to such a stretch; `steps.refined` looks again.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from collector import _core
from collector.capture_files.records import Columns
from collector.trace.arrow import indices, numbers
from collector.trace.schema import HopKind, HopState

Ints = NDArray[np.int64]

MOST_HOPS = 1 << 18
"""Of all directions together, before they are thinned; solving costs ~0.5 µs for each."""
SPANS = 256
NO_STATE = -1
"""Of a hop that shows nothing of clocks."""


class Way(Struct, frozen=True):
    """Hops from one host to another: stamps (ns) and frames at both ends, each of shape (n,)."""

    send_ns: Ints
    receive_ns: Ints
    send_frame: Ints
    receive_frame: Ints

    def take(self, places: NDArray[np.int64]) -> "Way":
        """Some of the hops."""
        columns = (self.send_ns, self.receive_ns, self.send_frame, self.receive_frame)
        return Way(*(column[places] for column in columns))


Ways = Mapping[tuple[str, str], Way]
"""By (sending host, receiving host)."""


def ways_of(hops: pa.Table) -> dict[tuple[str, str], Way]:
    """Matched hops between two hosts, by direction.

    A RST that ends what has begun is left out: a closed socket sends the same one again for each late packet, without
    timestamps, so where captures miss packets nothing distinguishes them.

    Arguments: `hops` with host, frame and `host_ns` of both ends, `kind`, `stream_end` and `state`.
    """
    (send, senders), (receive, receivers) = (indices(hops[f"{end}_host"]) for end in ("send", "receive"))
    state, states = indices(hops["state"])
    if HopState.MATCHED not in states:
        return {}
    kind, kinds = indices(hops["kind"])
    if HopKind.RST in kinds and (resets := kind == kinds.index(HopKind.RST)).any():
        state = np.where(resets & (numbers(hops["stream_end"]) > 1), NO_STATE, state).astype(np.int32)
    pairs = [(sender, receiver) for sender in senders for receiver in receivers]
    apart = np.array([sender != receiver for sender, receiver in pairs], dtype=np.bool_)
    ends: dict[str, Columns] = {
        end: {"host": host, "frame": numbers(hops[f"{end}_frame"]), "host_ns": numbers(hops[f"{end}_host_ns"])}
        for end, host in (("send", send), ("receive", receive))
    }
    matched = states.index(HopState.MATCHED)
    found = _core.stamps_by_pair(ends["send"], ends["receive"], state, matched, apart, len(receivers))
    return {pairs[pair]: Way(*columns) for pair, *columns in found}


def without(ways: Ways, frames: Mapping[str, NDArray[np.uint32]]) -> Ways:
    """The hops that have no end among these frames of some hosts."""
    if not frames:
        return ways
    none = np.empty(0, dtype=np.uint32)
    kept = {}
    for (send, receive), way in ways.items():
        out = np.isin(way.send_frame, frames.get(send, none)) | np.isin(way.receive_frame, frames.get(receive, none))
        kept[(send, receive)] = way.take(np.flatnonzero(~out))
    return {pair: way for pair, way in kept.items() if len(way.send_ns)}


def by_clock(ways: Ways, clock_of: Mapping[str, str]) -> Ways:
    """The hops between different clocks, by these; `clock_of` has the hosts that go by the clock of another."""
    if not clock_of:
        return ways
    found: dict[tuple[str, str], list[Way]] = {}
    for pair, way in ways.items():
        send, receive = (clock_of.get(host, host) for host in pair)
        if send != receive:
            found.setdefault((send, receive), []).append(way)
    return {pair: _join(parts) for pair, parts in found.items()}


def are_many(frames: Mapping[str, int]) -> bool:
    """Whether captures of so many frames, by host, are so long that their evidence will be thinned."""
    return sum(frames.values()) > MOST_HOPS


def essential(ways: Ways, frames: Mapping[str, int]) -> Ways:
    """What to add to `Evidence` of a partition's hops: the hulls, if the captures are so long that it comes to that
    anyway."""
    if not are_many(frames):
        return ways
    return {pair: _hulls(way, frames[pair[0]], SPANS) for pair, way in ways.items()}


class Evidence:
    """Hops of many partitions, by direction; where they are more than `most_hops`, the largest are thinned to what
    bounds a line.

    Arguments: `frames`, how many each host's capture has, which cuts it at the same `spans` places whenever it is
    thinned; `thinned`, whether what is added was thinned (`essential`).
    Memory: 32 bytes for each of `most_hops`, and one partition's hops.
    """

    def __init__(
        self, frames: Mapping[str, int], most_hops: int = MOST_HOPS, spans: int = SPANS, *, thinned: bool = False
    ) -> None:
        self.thinned = thinned
        self._frames, self._most_hops, self._spans = frames, most_hops, spans
        self._parts: dict[tuple[str, str], list[Way]] = {}
        self._count: dict[tuple[str, str], int] = {}

    def add(self, ways: Ways) -> None:
        """Take in the hops of a partition."""
        for pair, way in ways.items():
            self._parts.setdefault(pair, []).append(way)
            self._count[pair] = self._count.get(pair, 0) + len(way.send_ns)
        while sum(self._count.values()) > self._most_hops and self._spans:
            self._thin()

    def finer(self) -> "Evidence":
        """One without hops that is thinned to as many stretches of each of its own."""
        return Evidence(self._frames, self._most_hops, self._spans * SPANS)

    def ways(self) -> dict[tuple[str, str], Way]:
        """The hops of all partitions together."""
        return {pair: _join(parts) for pair, parts in sorted(self._parts.items())}

    def _thin(self) -> None:
        """Thin directions, the largest first, until there is room for as many again; of many, to fewer stretches."""
        self.thinned = True
        for pair in sorted(self._count, key=self._count.__getitem__, reverse=True):
            thin = _hulls(_join(self._parts[pair]), self._frames[pair[0]], self._spans)
            self._parts[pair], self._count[pair] = [thin], len(thin.send_ns)
            if 2 * sum(self._count.values()) <= self._most_hops:
                return
        self._spans //= 2


def merge_ways(one: Ways, other: Ways) -> dict[tuple[str, str], Way]:
    """The hops of both."""
    return {pair: _join([ways[pair] for ways in (one, other) if pair in ways]) for pair in sorted({**one, **other})}


def _join(ways: Sequence[Way]) -> Way:
    names = ("send_ns", "receive_ns", "send_frame", "receive_frame")
    return Way(*(np.concatenate([getattr(way, name) for way in ways]) for name in names))


def _hulls(way: Way, frames_count: int, spans: int) -> Way:
    columns: Columns = {"send_ns": way.send_ns, "receive_ns": way.receive_ns, "send_frame": way.send_frame}
    return way.take(_core.delay_hulls(columns, frames_count, spans))
