"""Hops, as matching makes them, between hosts whose clocks err by known amounts: the input of the clock solver."""

from collections.abc import Callable
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
    senders, receivers = (np.repeat([way[end] for way in ways], count) for end in (0, 1))
    return _as_captured(clocks, (senders, receivers), sent.ravel(), (sent + delays).ravel(), span_s)


Waits = Callable[[np.random.Generator, np.ndarray], np.ndarray]
"""What packets sent at these times (ns) wait beyond the least delay, in shares of that; shape as the times."""


@dataclass(frozen=True)
class OneWay:
    """Packets from one host to another: how many, their least delay (ns), and what they wait beyond it."""

    send: str
    receive: str
    count: int
    least_ns: int
    waits: Waits


def simulate_ways(clocks: dict[str, SkewedClock], ways: list[OneWay], span_s: float, seed: int) -> Traffic:
    """Hops sent at even random times over the span; each path has its own least delay and queues."""
    random = np.random.default_rng(seed)
    sent = [np.sort(random.integers(0, int(span_s * SECOND_NS), way.count)) for way in ways]
    waits = [(way.least_ns * way.waits(random, at)).astype(np.int64) for way, at in zip(ways, sent, strict=True)]
    received = [at + way.least_ns + wait for way, at, wait in zip(ways, sent, waits, strict=True)]
    counts = [way.count for way in ways]
    ends = np.repeat([way.send for way in ways], counts), np.repeat([way.receive for way in ways], counts)
    return _as_captured(clocks, ends, np.concatenate(sent), np.concatenate(received), span_s)


def _as_captured(
    clocks: dict[str, SkewedClock],
    ends: tuple[np.ndarray, np.ndarray],
    sent: np.ndarray,
    received: np.ndarray,
    span_s: float,
) -> Traffic:
    """The hops with their hosts' stamps and frames."""
    senders, receivers = ends
    times = {"send": sent, "receive": received}
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
    edges = np.array([0, int(span_s * 1e9)])
    windows = [(host, *clock.read(edges).tolist()) for host, clock in clocks.items()]
    return Traffic(pa.table(columns), windows, times["send"], times["receive"])


def cut_to(hops: pa.Table, tick_ns: int) -> pa.Table:
    """The same hops with stamps as a capture with so coarse a clock has them."""
    for name in ("send_host_ns", "receive_host_ns"):
        cut = hops[name].to_numpy() // tick_ns * tick_ns
        hops = hops.set_column(hops.column_names.index(name), name, pa.array(cut))
    return hops
