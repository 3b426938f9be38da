"""The protocols that are known: the core's registry, as Python needs it.

Each protocol is a module of the crate `tracer/core/protocols`, which states what is kept, read and overwritten.
`python -m collector.requests.protocols` prints the table of docs/decoding.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from collector import _core


@dataclass(frozen=True, slots=True)
class Protocol:
    """An entry of the registry; texts are Markdown."""

    name: str  # as in the columns `protocol`
    reads: str
    agent_keeps: str
    overwrites: str


PROTOCOLS = tuple(Protocol(*fields) for fields in _core.protocols())
"""In the order of the registry; the last is that of connections which no other claims."""


def table_lines() -> Iterator[str]:
    """The table of docs/decoding.md, in Markdown."""
    yield "| protocol | what is read | what an agent keeps by default | what is overwritten |"
    yield "|---|---|---|---|"
    for one in PROTOCOLS:
        yield f"| {one.name} | {one.reads or '–'} | {one.agent_keeps or '–'} | {one.overwrites or '–'} |"


if __name__ == "__main__":
    print("\n".join(table_lines()))
