"""The record of faults: `faults.jsonl` in the state directory, one line for each event of a fault.

    {"id": 3, "event": "planned", "wall_ns": …, "fault": {"kind", "target", "parameters", "after_ns", "for_ns"}}
    {"id": 3, "event": "started", "wall_ns": …, "done_ns": …, "detail": …}
    {"id": 3, "event": "ended",   "wall_ns": …, "done_ns": …, "how": …}

`how`: cleared, expired, down, momentary, failed (could not be made; the keeper's log says why), lost. Lines are only
ever appended. `wall_ns` is the machine's clock just before the fault is made (undone), `done_ns` just after, so the
true moment lies between. A fault that was active when the keeper was killed is ended as "lost" by the next command
that finds it, at that command's time. `down` leaves this file: it is what a diagnosis is graded against.
"""

import dataclasses
import json
import time
from collections.abc import Iterator
from pathlib import Path

from storage_cluster.faults.kinds import Fault, FaultError, parse

LOG_FILE = "faults.jsonl"


@dataclasses.dataclass(frozen=True)
class Record:
    """A fault and how it ended; times are wall-clock ns."""

    id: int
    fault: Fault
    planned_ns: int
    started_ns: int | None = None
    ended_ns: int | None = None
    how: str | None = None
    detail: str = ""  # what was hit, where chance chose it

    @property
    def state(self) -> str:
        """Planned, active or ended."""
        if self.ended_ns is not None:
            return "ended"
        return "planned" if self.started_ns is None else "active"


class FaultLog:
    """Appends to the record of one state directory."""

    def __init__(self, state_dir: Path) -> None:
        self._file = state_dir / LOG_FILE
        self._next_id = max((record.id for record in read(state_dir)), default=0) + 1

    def note_planned(self, fault: Fault) -> int:
        """Record a planned fault; returns its number."""
        number, self._next_id = self._next_id, self._next_id + 1
        self._append(id=number, event="planned", wall_ns=time.time_ns(), fault=dataclasses.asdict(fault))
        return number

    def note_start(self, number: int, wall_ns: int, detail: str = "") -> None:
        """Record that the fault is in force. Making it took from `wall_ns` until now."""
        self._append(id=number, event="started", wall_ns=wall_ns, done_ns=time.time_ns(), detail=detail)

    def note_end(self, number: int, wall_ns: int, how: str) -> None:
        """Record that the fault has ended."""
        self._append(id=number, event="ended", wall_ns=wall_ns, done_ns=time.time_ns(), how=how)

    def _append(self, **fields: object) -> None:
        with open(self._file, "a", encoding="utf-8") as file:
            file.write(json.dumps(fields) + "\n")


def read(state_dir: Path) -> tuple[Record, ...]:
    """All faults ever made in this state directory, oldest first. Raises: FaultError if the record is damaged."""
    records: dict[int, Record] = {}
    file = state_dir / LOG_FILE
    try:
        for line in _lines(file):
            records[line["id"]] = _after(records.get(line["id"]), line)
    except (KeyError, TypeError, ValueError):
        raise FaultError(f"{file} is no record of faults", "move it away") from None
    return tuple(records.values())


def active(state_dir: Path) -> tuple[Record, ...]:
    """The faults that are in force."""
    return tuple(record for record in read(state_dir) if record.state == "active")


def close(state_dir: Path) -> None:
    """Record the end of faults whose keeper no longer runs."""
    open_ones = [record for record in read(state_dir) if record.state != "ended"]
    if open_ones:
        log = FaultLog(state_dir)
        for record in open_ones:
            log.note_end(record.id, time.time_ns(), "lost")


def _after(record: Record | None, line: dict) -> Record:
    """A fault's record, updated by one more line."""
    if line["event"] == "planned":
        return Record(line["id"], parse(line["fault"]), line["wall_ns"])
    if record is None:
        raise ValueError(line["id"])
    if line["event"] == "started":
        return dataclasses.replace(record, started_ns=line["wall_ns"], detail=line["detail"])
    return dataclasses.replace(record, ended_ns=line["wall_ns"], how=line["how"])


def _lines(file: Path) -> Iterator[dict]:
    try:
        with open(file, encoding="utf-8") as lines:
            yield from map(json.loads, lines)
    except FileNotFoundError:
        return
