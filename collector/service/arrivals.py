"""Which segments each of the collectors that share a data directory has taken lately, for live traces.

    DATA/collectors/arrivals/<collector>.000001    a line of JSON for each segment, when it is durable

Each collector writes files of its own, the newest two of at most `MOST_BYTES`. The one that does the chores reads the
lines of all, its own as well, and notes the segments for the live traces. A line that is lost (a full disk, a crash)
leaves a segment out of a live trace; nothing else depends on it.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from collector.service.background import Background
from collector.service.shared_data import SharedData

MOST_BYTES = 1 << 20
READ_SECONDS = 0.2
KEPT_FILES = 2


@dataclass(frozen=True, slots=True)
class Arrival:
    """A segment that was stored, and when, by the clock of the collector that took it."""

    session: str
    host: str
    incarnation: str
    number: int
    at_ns: int


class ArrivalLog:
    """Writes the arrivals of one collector; safe to call from several threads."""

    def __init__(self, folder: Path, name: str, clock: Callable[[], int] = time.time_ns) -> None:
        self._folder, self._name, self._clock = folder, name, clock
        self._lock, self._number = threading.Lock(), 1

    def note(self, session: str, host: str, incarnation: str, number: int) -> None:
        """Write a line."""
        line = json.dumps([session, host, incarnation, number, self._clock()], separators=(",", ":")) + "\n"
        with self._lock, suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            with self._file(self._number).open("ab") as file:
                file.write(line.encode())
                is_full = os.fstat(file.fileno()).st_size + len(line) >= MOST_BYTES
            if is_full:
                self._number += 1
                self._file(self._number - KEPT_FILES).unlink(missing_ok=True)

    def close(self) -> None:
        """Remove its files: this collector ends."""
        with self._lock:
            for number in range(max(1, self._number - KEPT_FILES), self._number + 1):
                with suppress(OSError):
                    self._file(number).unlink(missing_ok=True)

    def _file(self, number: int) -> Path:
        return self._folder / f"{self._name}.{number:06d}"


class ArrivalReader:
    """Reads the arrivals of all collectors, each once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: dict[str, int] = {}

    def read(self) -> Iterator[Arrival]:
        """The arrivals that were not read yet. Raises: OSError."""
        names = sorted(path.name for path in self._folder.iterdir()) if self._folder.is_dir() else []
        self._offsets = {name: self._offsets.get(name, 0) for name in names}
        for name in names:
            with suppress(FileNotFoundError):
                yield from self._read(name)

    def _read(self, name: str) -> Iterator[Arrival]:
        with (self._folder / name).open("rb") as file:
            file.seek(self._offsets[name])
            content = file.read()
        whole_len = content.rfind(b"\n") + 1
        self._offsets[name] += whole_len
        for line in content[:whole_len].splitlines():
            with suppress(ValueError, TypeError):  # the disk was full
                yield Arrival(*json.loads(line))


class ArrivalReading:
    """Passes on what arrived at any collector, in a thread of its own, while this one does the chores.

    Arguments: `note` takes an arrival; `most_age_ns`, older ones are passed over; `on_begin` is called once this
        collector does the chores.
    """

    def __init__(
        self,
        shared: SharedData,
        note: Callable[[Arrival], None],
        most_age_ns: int,
        on_begin: Callable[[], object] = lambda: None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._shared, self._note, self._most_age_ns, self._clock = shared, note, most_age_ns, clock
        self._reader = ArrivalReader(shared.arrivals)
        self._on_begin, self._has_begun = on_begin, False
        self._background = Background("arrivals", READ_SECONDS, self.step)

    def start(self) -> None:
        """Begin to work."""
        self._background.start()

    def stop(self) -> None:
        """End."""
        self._background.stop()

    def step(self) -> None:
        """Pass on what is new. Raises: OSError."""
        if not self._shared.does_chores:
            return
        if not self._has_begun:
            self._has_begun = True
            self._on_begin()
        oldest_ns = self._clock() - self._most_age_ns
        for each in self._reader.read():
            if each.at_ns >= oldest_ns:
                with suppress(FileNotFoundError):  # it was joined or deleted meanwhile
                    self._note(each)
