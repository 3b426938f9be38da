"""Hops, as matching makes them, between hosts whose clocks err by known amounts: the input of the clock solver."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

START_NS = 1_800_000_000_000_000_000
DAY_NS = 86_400_000_000_000
SECOND_NS = 1_000_000_000


@dataclass(frozen=True)
class SkewedClock:
    """A host's clock: its offset at the start (ns), its skew (ppb), and one step (when, by how much; ns)."""

    offset_ns: int = 0
    skew_ppb: int = 0
    step: tuple[int, int] = (0, 0)

    def read(self, at_ns: np.ndarray) -> np.ndarray:
        """The clock's readings at these times since the start."""
        stepped = np.where(at_ns >= self.step[0], self.step[1], 0)
        return START_NS + at_ns + self.offset_ns + np.rint(at_ns * (self.skew_ppb / 1e9)).astype(np.int64) + stepped


@dataclass(frozen=True)
class Traffic:
    """Hops as matching makes them, each host's capture window, and the true times of sends and receives (ns)."""

    hops: pa.Table
    windows: list[tuple[str, int, int]]
    sent_ns: np.ndarray
    received_ns: np.ndarray


def simulate_hops(
    clocks: dict[str, SkewedClock],
    pairs: list[tuple[str, str]],
    *,
    span_s: float,
    there_ns: int,
    back_ns: int,
    seed: int = 1,
    count: int = 300,
) -> Traffic:
    """`count` hops in each direction of each pair. A delay is the minimum of its direction plus an exponential tail of
    a tenth of that on average."""
    random = np.random.default_rng(seed)
    ways = [way for a, b in pairs for way in ((a, b, there_ns), (b, a, back_ns))]
    sent = np.sort(random.integers(0, int(span_s * 1e9), (len(ways), count)), axis=1)
    delays = np.array([[least] for _, _, least in ways])
    delays = delays + random.exponential(delays / 10, sent.shape).astype(np.int64)
    delays[:, ::50] = [[least] for _, _, least in ways]
    received = sent + delays
    senders, receivers = (np.repeat([way[end] for way in ways], count) for end in (0, 1))
    times = {"send": sent.ravel(), "receive": received.ravel()}
    columns: dict[str, object] = {"send_host": senders, "receive_host": receivers}
    columns |= {"kind": ["data"] * len(senders), "state": ["matched"] * len(senders)}
    columns |= {"stream_end": np.full(len(senders), 100, np.int64)}
    for end, hosts in (("send", senders), ("receive", receivers)):
        stamps, frames = np.zeros(len(hosts), np.int64), np.zeros(len(hosts), np.uint32)
        for host, clock in clocks.items():
            captured = np.sort(np.concatenate([times["send"][senders == host], times["receive"][receivers == host]]))
            own = hosts == host
            stamps[own] = clock.read(times[end][own])
            frames[own] = np.searchsorted(captured, times[end][own]) + 1
        columns |= {f"{end}_host_ns": stamps, f"{end}_frame": frames}
    ends = np.array([0, int(span_s * 1e9)])
    windows = [(host, *clock.read(ends).tolist()) for host, clock in clocks.items()]
    return Traffic(pa.table(columns), windows, times["send"], times["receive"])
