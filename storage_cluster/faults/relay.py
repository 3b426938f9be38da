"""A process that forwards frames between two interfaces with delay, jitter and reordering.

    inner ──▶ [frame, due = arrival + delay ± jitter] ──▶ outer      a queue each way, ordered by due time

The kernels of many machines have no `netem`; this works for every user who may make namespaces. Both interfaces are
ends of virtual cables whose other ends have segmentation offload off, so a frame here is what a wire would carry (one
MSS at most), and loss, delay and order are decided frame by frame. Checksums still travel as promises of the kernel
(PACKET_VNET_HDR), so nothing is computed twice.

Theory: a frame's due time counts from the kernel's stamp of its arrival (SO_TIMESTAMPNS), so the time that this process
takes to wake up is inside the delay, not on top of it, as long as it is shorter. Jitter keeps the order, as a queue in
a switch does: due times never decrease within a direction. Reordering holds single frames back and lets others pass.

Limits: about one core's worth of Python (docs/cluster.md has the measured rate); what does not fit its socket's buffer
is lost, as at a slow switch. It runs with real-time priority where that is allowed.

Orders come as JSON lines on standard input: a list of rules, or `null` to stop reading, send what is queued, and end.
Until the first order nothing is carried.
"""

import argparse
import contextlib
import dataclasses
import errno
import heapq
import json
import os
import random
import select
import socket
import struct
import sys
import time
from collections.abc import Sequence

_SOL_PACKET, _PACKET_VNET_HDR, _PACKET_QDISC_BYPASS, _PACKET_IGNORE_OUTGOING = 263, 15, 20, 23
_SO_RCVBUFFORCE, _SO_TIMESTAMPNS = 33, 35
_ETH_P_ALL = 3
_BUFFER_BYTES = 32 << 20
_FRAME_MAX_LEN = 1 << 17
_VNET_HEADER_LEN = 10
_IPV4_AT = slice(_VNET_HEADER_LEN + 12, _VNET_HEADER_LEN + 14)
_SOURCE_AT = slice(_VNET_HEADER_LEN + 26, _VNET_HEADER_LEN + 30)
_TARGET_AT = slice(_VNET_HEADER_LEN + 30, _VNET_HEADER_LEN + 34)
_BATCH_FRAMES = 64


@dataclasses.dataclass(frozen=True)
class Rule:
    """How the frames of one fault are treated; `peer` is an IPv4 address, "" for any."""

    peer: str
    to_host: bool
    from_host: bool
    probability: float
    delay_ns: int
    jitter_ns: int
    overtaken: bool  # held back for others to pass; otherwise the order is kept
    seed: int | None


class Lane:
    """The queue of one direction: the frames held back, and when each is due."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = [(rule, socket.inet_aton(rule.peer) if rule.peer else b"") for rule in rules]
        self._random = random.Random(next((rule.seed for rule in rules if rule.seed is not None), None))
        self._queue: list[tuple[int, int, bytes]] = []
        self._count = 0
        self._last_due_ns = 0

    def add(self, frame: bytes, arrival_ns: int) -> None:
        """Queue a frame."""
        due_ns, overtaken = arrival_ns, False
        for rule, peer in self._rules:
            if (not peer or _has_address(frame, peer)) and self._random.random() < rule.probability:
                due_ns += rule.delay_ns + round(rule.jitter_ns * self._random.uniform(-1, 1))
                overtaken |= rule.overtaken
        if not overtaken:
            due_ns = self._last_due_ns = max(due_ns, self._last_due_ns)
        heapq.heappush(self._queue, (due_ns, self._count, frame))
        self._count += 1

    @property
    def next_due_ns(self) -> int | None:
        """When the next frame is due; None if there is none."""
        return self._queue[0][0] if self._queue else None

    def take(self, now_ns: int) -> bytes | None:
        """The next frame, if it is due."""
        return heapq.heappop(self._queue)[2] if self._queue and self._queue[0][0] <= now_ns else None

    def take_over(self, earlier: "Lane") -> None:
        """Take over the frames that another lane has queued."""
        self._queue, self._count, self._last_due_ns = earlier._queue, earlier._count, earlier._last_due_ns


def main() -> None:
    """Forward frames until standard input closes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("inner")  # towards the host
    parser.add_argument("outer")  # towards the switch
    options = parser.parse_args()
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    sockets = (_open(options.inner), _open(options.outer))
    print("ready", flush=True)
    Relay(*sockets).run()


class Relay:
    """Two sockets, and a lane each way."""

    def __init__(self, inner: socket.socket, outer: socket.socket) -> None:
        self._ways = {inner: outer, outer: inner}
        self._inner = inner
        self._lanes: dict[socket.socket, Lane] = {}  # by where frames come from; empty until the first order

    def run(self) -> None:
        """Forward frames until the order to end, or until standard input closes."""
        reading: list[socket.socket] = list(self._ways)
        while reading or any(lane.next_due_ns is not None for lane in self._lanes.values()):
            readable, _, _ = select.select([*reading, *([sys.stdin] if reading else [])], [], [], self._idle_s())
            if sys.stdin in readable and not self._obey(sys.stdin.readline()):
                reading = []
            for source in reading:
                if source in readable:
                    self._read(source)
            self._send_due()

    def _obey(self, line: str) -> bool:
        rules = json.loads(line) if line else None
        if rules is None:
            return False
        made = [Rule(**rule) for rule in rules]
        lanes = {
            source: Lane([rule for rule in made if (rule.from_host if source is self._inner else rule.to_host)])
            for source in self._ways
        }
        for source, earlier in self._lanes.items():
            lanes[source].take_over(earlier)
        self._lanes = lanes
        return True

    def _read(self, source: socket.socket) -> None:
        try:
            for _ in range(_BATCH_FRAMES):
                frame, ancillary, _, _ = source.recvmsg(_FRAME_MAX_LEN, 64)
                if self._lanes:
                    self._lanes[source].add(frame, _stamp_ns(ancillary))
        except BlockingIOError:
            pass
        except OSError as error:
            if error.errno != errno.ENETDOWN:  # the interface was taken down: said once, and it may come up again
                raise

    def _idle_s(self) -> float | None:
        dues = [lane.next_due_ns for lane in self._lanes.values() if lane.next_due_ns is not None]
        return max(0, min(dues) - time.time_ns()) / 1e9 if dues else None

    def _send_due(self) -> None:
        for source, lane in self._lanes.items():
            while (frame := lane.take(time.time_ns())) is not None:
                with contextlib.suppress(OSError):  # no room in the cable's queue, or it is gone: the frame is lost
                    self._ways[source].send(frame)


def _open(interface: str) -> socket.socket:
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    for option in (_PACKET_VNET_HDR, _PACKET_QDISC_BYPASS, _PACKET_IGNORE_OUTGOING):
        opened.setsockopt(_SOL_PACKET, option, 1)
    opened.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    with contextlib.suppress(PermissionError):
        opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
    opened.setblocking(False)
    opened.bind((interface, _ETH_P_ALL))
    return opened


def _stamp_ns(ancillary: list[tuple[int, int, bytes]]) -> int:
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS):
            seconds, nanoseconds = struct.unpack("@qq", data)
            return seconds * 1_000_000_000 + nanoseconds
    return time.time_ns()


def _has_address(frame: bytes, address: bytes) -> bool:
    return frame[_IPV4_AT] == b"\x08\x00" and address in (frame[_SOURCE_AT], frame[_TARGET_AT])


if __name__ == "__main__":
    main()
