"""From a host's stream to its capture on this disk, and how far it has come.

An agent's stream is a capture already: it is stored as it comes, and what follows its last whole block is cut off.
tcpdump's is not: the core keeps of it what the payload policy keeps, redacted, and only that is written.
"""

import os
import re
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from collector.remote.preflight import HostFacts, Method, Plan
from collector.remote.starts import StartOptions
from tracer import _capture, secret_rules
from tracer.errors import DiskFullError, ResourceError
from tracer.segments import PARTIAL_SUFFIX, segment_name, whole_blocks_len
from tracer.spool import DISK_FULL

_TCPDUMP_DROPS = re.compile(r"(\d+) packets? dropped by (?:kernel|interface)")
_STATUS = "status "


class Receiver(Protocol):
    """Takes a host's stream and its lines."""

    packets_count: int
    dropped_count: int
    received_bytes: int

    def feed(self, piece: bytes) -> None:
        """Take the next bytes. Raises: TracerError if they are no capture, or cannot be stored."""

    def note_line(self, line: str) -> None:
        """Take a line of its standard error."""

    def newest_host_ns(self) -> int | None:
        """All that the host captured until this time of its clock has arrived; None if that is not known yet."""

    def finish(self) -> None:
        """The stream has ended: what arrived is a capture in the folder. Raises: TracerError."""


def receiver_of(host: str, facts: HostFacts, plan: Plan, options: StartOptions, folder: Path) -> Receiver:
    """What takes this host's stream into `folder`, which it makes."""
    with _disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if plan.method is Method.TCPDUMP:
        return TcpdumpReceiver(host, facts, plan, options, folder)
    return AgentReceiver(host, folder)


class AgentReceiver:
    """Stores an agent's sections in one file."""

    def __init__(self, host: str, folder: Path) -> None:
        self.packets_count = self.dropped_count = self.received_bytes = 0
        self._path = folder / segment_name(host, 1)
        self._partial = Path(f"{self._path}{PARTIAL_SUFFIX}")
        self._marks: deque[tuple[int, int]] = deque(maxlen=1000)  # bytes written there, its clock then
        self._newest_ns: int | None = None
        with _disk_errors(folder):
            self._handle = os.open(self._partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def feed(self, piece: bytes) -> None:
        """As `Receiver.feed`."""
        with _disk_errors(self._path.parent):
            rest = memoryview(piece)
            while rest:
                rest = rest[os.write(self._handle, rest) :]
        self.received_bytes += len(piece)

    def note_line(self, line: str) -> None:
        """As `Receiver.note_line`."""
        if not line.startswith(_STATUS):
            return
        figures = _figures(line)
        self.packets_count = figures.get("packets", self.packets_count)
        self.dropped_count = figures.get("dropped", self.dropped_count)
        self._marks.append((figures.get("written_bytes", 0), figures.get("host_ns", 0)))

    def newest_host_ns(self) -> int | None:
        """As `Receiver.newest_host_ns`."""
        while self._marks and self._marks[0][0] <= self.received_bytes:
            self._newest_ns = self._marks.popleft()[1]
        return self._newest_ns

    def finish(self) -> None:
        """As `Receiver.finish`."""
        with _disk_errors(self._path.parent):
            if length := whole_blocks_len(self._partial):
                os.truncate(self._handle, length)
            os.fsync(self._handle)
            os.close(self._handle)
            if length:
                self._partial.rename(self._path)
            else:
                self._partial.unlink()


class TcpdumpReceiver:
    """Stores what the payload policy keeps of tcpdump's packets."""

    def __init__(self, host: str, facts: HostFacts, plan: Plan, options: StartOptions, folder: Path) -> None:
        self.dropped_count = self.received_bytes = self.packets_count = 0
        self._capture = _capture.StreamedCapture(
            [(interface.name, interface.index, interface.address) for interface in plan.interfaces],
            str(folder),
            host,
            f"tcpdump, libpcap {'.'.join(map(str, facts.libpcap))}",
            facts.system,
            [],
            payload=options.payload,
            secrets=secret_rules.rules(),
        )
        self._newest_ns: int | None = None

    def feed(self, piece: bytes) -> None:
        """As `Receiver.feed`."""
        self.received_bytes += len(piece)
        self._capture.feed(piece)
        self.packets_count, _, _, newest_ns = self._capture.counts()
        self._newest_ns = newest_ns or None

    def note_line(self, line: str) -> None:
        """As `Receiver.note_line`."""
        if found := _TCPDUMP_DROPS.match(line):
            self.dropped_count += int(found[1])

    def newest_host_ns(self) -> int | None:
        """As `Receiver.newest_host_ns`; without new packets it is not known, so each is used once."""
        newest_ns, self._newest_ns = self._newest_ns, None
        return newest_ns

    def finish(self) -> None:
        """As `Receiver.finish`."""
        self._capture.finish(self.dropped_count)


def _figures(line: str) -> Mapping[str, int]:
    """The numbers of a line `status NAME=NUMBER …`."""
    pairs = (word.partition("=") for word in line.removeprefix(_STATUS).split())
    return {name: int(number) for name, _, number in pairs if number.isdecimal()}


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    """Within it, errors of this disk are the operator's."""
    try:
        yield
    except OSError as error:
        if error.errno in DISK_FULL:
            raise DiskFullError(f"no space left on the disk of {folder}", "free some space") from None
        raise ResourceError(f"cannot write to {folder}: {error.strerror}", "choose another place with -o") from None
