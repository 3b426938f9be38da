"""The hosts of a session: of each, what its agents sent, one start after the other.

A host whose agent was restarted has several incarnations, each sent whole before the next one's first segment, since an
agent first sends what earlier ones left. Their segments are one host's capture, with a gap that each segment's
`twintap.since` shows. Where segments of two incarnations arrived in turns, two agents ran at the same time: a cloned
machine has the name of its original. Such incarnations are separate sources, and their own addresses decide whether
they are one host (`collector.decode.host_identity`).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from collector.decode.host_capture import HostSource
from collector.service.ingest import host_folders, incarnation_folders
from collector.service.stored import LAST_NS, pieces, stored_files


@dataclass(frozen=True, slots=True)
class Incarnation:
    """What was received of one start of an agent."""

    host: str
    name: str
    files: tuple[Path, ...]  # in order
    first_ns: int  # when its first segment arrived, by the collector's clock
    last_ns: int

    @property
    def folder(self) -> Path:
        """Where its segments are."""
        return self.files[0].parent


def stored_incarnations(session: Path, from_ns: int = 0, to_ns: int = LAST_NS) -> list[Incarnation]:
    """All incarnations in a session's folder of which a segment was received, with those that arrived in a time."""
    found = []
    for folder in (folder for host in host_folders(session) for folder in incarnation_folders(host)):
        stored = stored_files(folder)
        if files := tuple(pieces(stored, from_ns, to_ns)):
            arrived_ns = min(each.first_ns for each in stored), max(each.last_ns for each in stored)
            found.append(Incarnation(folder.parent.name, folder.name, files, *arrived_ns))
    return found


def sequences(incarnations: Iterable[Incarnation]) -> list[list[Incarnation]]:
    """The incarnations by host; those of agents that ran at the same time are in sequences of their own."""
    found: list[list[Incarnation]] = []
    for each in sorted(incarnations, key=lambda each: (each.host, each.first_ns, each.name)):
        sequence = next((one for one in found if one[-1].host == each.host and one[-1].last_ns <= each.first_ns), None)
        if sequence is None:
            found.append([each])
        else:
            sequence.append(each)
    return found


def host_sources(found: Sequence[Sequence[Incarnation]]) -> list[HostSource]:
    """The captures of each host, of its `sequences`."""
    counts = Counter(sequence[0].host for sequence in found)
    return [
        HostSource(
            sequence[0].host,
            tuple(file for each in sequence for file in each.files),
            sequence[0].folder if counts[sequence[0].host] > 1 else None,
        )
        for sequence in found
    ]
