"""The protocols that are known: the core's registry, as Python needs it.

Each protocol is a module of the crate `tracer/core/protocols`, which states what is kept, read and overwritten.
`python -m collector.requests.protocols` prints the table of docs/decoding.md.
"""

from collections.abc import Iterator
from enum import StrEnum

from msgspec import Struct

from collector import _core


class Exchanges(StrEnum):
    """How the messages of a protocol become exchanges (`tracer/core/protocols/src/exchanges.rs`)."""

    TURNS = "turns"
    TURNS_INSIDE = "turns_inside"
    ORDERED = "ordered"
    BY_STREAM_ID = "by_stream_id"
    STREAMS = "streams"


REQUESTS: dict[Exchanges, str] = {
    Exchanges.TURNS: "turns",
    Exchanges.TURNS_INSIDE: "turns of what is inside",
    Exchanges.ORDERED: "the i-th response answers the i-th request",
    Exchanges.BY_STREAM_ID: "streams, however many are under way at once",
    Exchanges.STREAMS: "none: they mark streams",
}
"""Cells of the table of docs/decoding.md."""


class Protocol(Struct, frozen=True):
    """An entry of the registry; texts are Markdown."""

    name: str  # as in the columns `protocol`
    family: str  # the word before the colon of a search for its requests
    exchanges: Exchanges
    reads: str
    agent_keeps: str
    overwrites: str


PROTOCOLS = tuple(Protocol(name, family, Exchanges(kind), *texts) for name, family, kind, *texts in _core.protocols())
"""In the order of the registry; the last is that of connections which no other claims."""


NAMES = [protocol.name for protocol in PROTOCOLS]
"""In the same order: the core's codes of protocols."""
MULTIPLEXED = [protocol.name for protocol in PROTOCOLS if protocol.exchanges is Exchanges.BY_STREAM_ID]
"""Protocols with several exchanges at once on a connection, each by itself."""
FOLLOWED_IN_ORDER = [protocol.name for protocol in PROTOCOLS[1:] if protocol.exchanges is Exchanges.ORDERED]
"""Protocols whose messages are followed by their lengths, and answered in the order of requests: all such but the
first, HTTP/1, in which bytes without an answer are interim responses (RFC 9110 §15.2)."""
WITH_SHAPES = [protocol.name for protocol in PROTOCOLS if protocol.family == "sql"]
"""Protocols whose targets are shapes of statements: few, however many requests there are."""
WITH_FEW_TARGETS = [*WITH_SHAPES, "mongodb", "kafka"]
"""Those, and protocols whose targets are collections or topics: what is asked for is a part of a request's class."""
WITH_OWN_IDS = _core.protocols_with_own_ids()
"""Protocols whose transaction ids never are those of a request of another protocol."""
UNKNOWN = NAMES[-1]


def table_lines() -> Iterator[str]:
    """The table of docs/decoding.md, in Markdown."""
    yield "| protocol | what is read | requests | what an agent keeps by default | what is overwritten |"
    yield "|---|---|---|---|---|"
    for one in PROTOCOLS:
        requests = REQUESTS[one.exchanges] if one.reads else "turns"
        yield f"| {one.name} | {one.reads or '–'} | {requests} | {one.agent_keeps or '–'} | {one.overwrites or '–'} |"


if __name__ == "__main__":
    print("\n".join(table_lines()))
