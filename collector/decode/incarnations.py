"""The hosts of a session: of each, what its agents sent, one start after the other.

A host whose agent was restarted has several incarnations, each sent whole before the next one's first segment, since an
agent first sends what earlier ones left. Their segments are one host's capture, with a gap that each segment's
`twintap.since` shows. Where segments of two incarnations arrived in turns, two agents ran at the same time: a cloned
machine has the name of its original. Such incarnations are separate sources, and their own addresses decide whether
they are one host (`collector.decode.host_identity`).

Collectors with data directories of their own have each a part of a session, also of one incarnation: together they are
read in the order of numbers.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from collector.capture_files.stored import LAST_NS, StoredFile, pieces, stored_files
from collector.decode.host_capture import HostSource
from collector.trace.data_directory import host_folders, incarnation_folders


class Incarnation(Struct, frozen=True):
    """What was received of one start of an agent, by one collector or several."""

    host: str
    name: str
    files: tuple[Path, ...]  # in order
    first_ns: int  # when its first segment arrived, by the collector's clock
    last_ns: int

    @property
    def folder(self) -> Path:
        """Where its segments are."""
        return self.files[0].parent


def stored_incarnations(*sessions: Path, from_ns: int = 0, to_ns: int = LAST_NS) -> list[Incarnation]:
    """All incarnations of which a segment was received, with those that arrived in a time.

    Arguments: `sessions`, the folders of a session at each collector that has some of it. A segment that several of
        them have is taken once.
    """
    stored: dict[tuple[str, str], list[StoredFile]] = {}
    for host in (host for session in sessions for host in host_folders(session)):
        for folder in incarnation_folders(host):
            stored.setdefault((host.name, folder.name), []).extend(stored_files(folder))
    found = []
    for key, those in stored.items():
        if files := tuple(pieces(those, from_ns, to_ns)):
            arrived_ns = min(each.first_ns for each in those), max(each.last_ns for each in those)
            found.append(Incarnation(*key, files, *arrived_ns))
    return found


def is_session(folder: Path) -> bool:
    """Whether a folder is that of a session, as a collector keeps it."""
    return any(incarnation_folders(host) for host in host_folders(folder))


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
