"""Reads what an agent states of who owns connections: the comments of its segments' Name Resolution Blocks.

Their form is in the header of `tracer/core/capture/src/owners/statement.rs`. A capture is input like any other: what is
no statement is counted and left out.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from urllib.parse import unquote

from msgspec import Struct, field

from tracer.plain_text import plain

OWNER_PREFIX = "twintap.owner "
OWNERS_PREFIX = "twintap.owners "
MOST_ENDS = 200_000
"""Ends of connections that are kept of one host."""
LONGEST_TEXT = 256
LAST_NUMBER = 2**63 - 1

End = tuple[str, int]
"""Address and port."""


class OwnerEvidence(StrEnum):
    """How an owner is known."""

    SOCKET = "socket"  # it held the connection's own socket
    LISTENER = "listener"  # it listened at the port, and its host accepted the connection


class Owner(Struct, frozen=True):
    """Who holds a socket; None for what is not known, or differs between several holders."""

    process: str | None = None
    exe: str | None = None
    pid: int | None = None
    start_ns: int | None = None
    user: str | None = None  # the name, else the number
    unit: str | None = None
    container: str | None = None
    pod: str | None = None  # the name, else the uid


class Statement(Struct, frozen=True):
    """The owner of one end of a connection that was first seen at `seen_ns`."""

    owner: Owner
    evidence: OwnerEvidence
    seen_ns: int


class Owners(Struct):
    """What the agents of one host state."""

    ends: dict[tuple[End, End], dict[int, Statement]] = field(default_factory=dict)
    """By local and remote end, and by when the connection was first seen."""
    unreadable_count: int = 0
    """Ends whose process the agent had no right to see."""
    malformed_count: int = 0
    left_out_count: int = 0
    """Ends beyond `MOST_ENDS`, and those for which the agent had no room."""
    _count: int = 0

    def add(self, comments: Iterable[str]) -> None:
        """Add the statements of a file.

        Segments repeat what is known. The connection's own socket says more than the listening one; of two statements
        by the same evidence the later one holds, since a server may give a socket to another process.
        """
        for comment in comments:
            if comment.startswith(OWNERS_PREFIX):
                counts = _fields(comment.removeprefix(OWNERS_PREFIX))
                self.unreadable_count += _number(counts.get("unreadable", "")) or 0
                self.left_out_count += _number(counts.get("left_out", "")) or 0
                continue
            head, *lines = comment.split("\n")
            owner = _owner(_fields(head.removeprefix(OWNER_PREFIX)))
            for line in lines:
                self._add_end(line, owner)

    def _add_end(self, line: str, owner: Owner) -> None:
        words = line.split(" ")
        ends = [_end(word) for word in words[:2]]
        seen_ns = _number(words[3]) if len(words) == 4 else None
        if len(ends) < 2 or ends[0] is None or ends[1] is None or seen_ns is None or words[2] not in set(OwnerEvidence):
            self.malformed_count += 1
            return
        statement = Statement(owner, OwnerEvidence(words[2]), seen_ns)
        known = self.ends.get((ends[0], ends[1]), {})
        before = known.get(seen_ns)
        if before is None:
            if self._count >= MOST_ENDS:
                self.left_out_count += 1
                return
            self._count += 1
        elif before.evidence is OwnerEvidence.SOCKET and statement.evidence is OwnerEvidence.LISTENER:
            return
        self.ends.setdefault((ends[0], ends[1]), known)[seen_ns] = statement


def _fields(text: str) -> dict[str, str]:
    pairs = (word.partition("=") for word in text.split(" ") if word)
    return {name: plain(unquote(value))[:LONGEST_TEXT] for name, _, value in pairs if value}


def _owner(fields: Mapping[str, str]) -> Owner:
    return Owner(
        process=fields.get("process"),
        exe=fields.get("exe"),
        pid=_number(fields.get("pid", ""), 2**32 - 1),
        start_ns=_number(fields.get("start_ns", "")),
        user=fields.get("user", fields.get("uid")),
        unit=fields.get("unit"),
        container=fields.get("container"),
        pod=fields.get("pod", fields.get("pod_uid")),
    )


def _end(text: str) -> End | None:
    address, _, port = text.rpartition(":")
    number = _number(port, 2**16 - 1)
    return None if not address or number is None else (address.removeprefix("[").removesuffix("]"), number)


def _number(text: str, last: int = LAST_NUMBER) -> int | None:
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        return None
    return int(text) if int(text) <= last else None
