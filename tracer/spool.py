"""Where an agent keeps the segments that its collector has not acknowledged.

    SPOOL/<collector>/<session>/<host>/<host>-000007.pcapng    not yet acknowledged
                                      /sent.json               the last number ever sent, for the next agent
                                      /lock                    held by the agent that captures into it

A spool is bounded: when it is full the oldest segments go, are counted, and the operator and the collector are told.
"""

import fcntl
import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from urllib.parse import quote

from tracer.errors import ResourceError
from tracer.segments import next_number, segments

_SENT_FILE = "sent.json"
_LOCK_FILE = "lock"


@dataclass(frozen=True, slots=True)
class Destination:
    """Where an agent sends to, and where it keeps what is not there yet."""

    url: str
    session: str
    token: str
    spool: Path
    spool_limit_bytes: int


@dataclass(frozen=True, slots=True)
class SpoolState:
    """What must outlive the segments."""

    last_number: int = 0  # the highest that was ever acknowledged or thrown away
    lost_count: int = 0  # segments thrown away because the spool was full
    closed: bool = False  # the collector knows that this was all


class Spool:
    """The segments of one host and session that the collector has not acknowledged."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self.folder = folder
        self.host = folder.name
        self.session = folder.parent.name
        self._limit_bytes = limit_bytes
        self._lock: int | None = None  # descriptor of the lock file

    def open(self) -> bool:
        """Take the spool for this process; False if another agent has it. Raises: ResourceError."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.folder / _LOCK_FILE, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            return False
        except OSError as error:
            raise ResourceError(
                f"cannot write to the spool {self.folder}: {error.strerror}", "choose another with --spool"
            ) from None
        return True

    def close(self) -> None:
        """Leave the spool to others."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def waiting(self) -> list[tuple[int, Path]]:
        """Return (number, path) of the segments to send, in order."""
        return segments(self.folder, self.host)

    def state(self) -> SpoolState:
        """Return what is remembered."""
        try:
            return SpoolState(**json.loads((self.folder / _SENT_FILE).read_bytes()))
        except FileNotFoundError:
            return SpoolState()

    def next_number(self) -> int:
        """Return the first number that no segment ever had."""
        return max(next_number(self.folder, self.host), self.state().last_number + 1)

    def skip_to(self, last_number: int) -> None:
        """Never give a number up to this one: the collector has them."""
        state = self.state()
        self._remember(replace(state, last_number=max(state.last_number, last_number)))

    def note_closed(self) -> None:
        """Remember that the collector knows that this was all, until there is more."""
        self._remember(replace(self.state(), closed=True))

    def unfinished(self) -> bool:
        """Whether the collector is still to be told something."""
        state = self.state()
        return bool(self.waiting()) or (state.last_number > 0 and not state.closed)

    def delete(self, number: int, path: Path) -> None:
        """Forget a segment that the collector has."""
        state = self.state()
        self._remember(replace(state, last_number=max(state.last_number, number), closed=False))
        path.unlink()

    def trim(self) -> int:
        """Throw the oldest segments away until the spool is within its limit; how many."""
        waiting = self.waiting()
        excess_bytes = sum(path.stat().st_size for _, path in waiting) - self._limit_bytes
        thrown_count = 0
        for number, path in waiting[:-1]:  # the newest stays, however small the limit
            if excess_bytes <= 0:
                break
            excess_bytes -= path.stat().st_size
            state = self.state()
            self._remember(SpoolState(max(state.last_number, number), state.lost_count + 1))
            path.unlink()
            thrown_count += 1
        return thrown_count

    def _remember(self, state: SpoolState) -> None:
        temporary = self.folder / f"{_SENT_FILE}.new"
        temporary.write_text(json.dumps(asdict(state)))
        temporary.replace(self.folder / _SENT_FILE)


def default_spool() -> Path:
    """Return the directory for spools if none is given."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "twintap" / "spool"


def open_spools(destination: Destination, host: str) -> list[Spool]:
    """Return this capture's spool, last, after those that earlier agents of this host left for the same collector.

    Raises: ResourceError if another agent has this capture's spool, or it cannot be written.
    """
    collector = quote(destination.url.split("://", 1)[-1].rstrip("/"), safe="")
    folder = destination.spool / collector / destination.session / host
    limit_bytes = destination.spool_limit_bytes
    spool = Spool(folder, limit_bytes)
    if not spool.open():
        raise ResourceError(
            f"another agent captures host {host} for session {destination.session}",
            "stop it, or give another --session or --host",
        )
    others = (path for path in sorted(folder.parents[1].glob(f"*/{host}")) if path != folder)
    left = [found for path in others if (found := Spool(path, limit_bytes)).unfinished() and found.open()]
    return [*left, spool]
