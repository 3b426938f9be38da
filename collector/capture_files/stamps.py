"""Who stamped the packets of an interface, as an agent states it with `--timestamps hardware`.

A statement is a comment in a capture: `twintap.stamps interface=eth0 hardware=12 software=3 error_ns=250`, the packets
of one segment by who stamped them, and how far stamps of the card may be off by the host's clock
(`tracer/core/capture/src/timestamps.rs`). A capture is input like any other: a statement that does not fit is left out.
"""

from collections.abc import Iterable

from msgspec import Struct

PREFIX = "twintap.stamps "
MOST_ERROR_NS = 1_000_000_000
"""Of a statement that is believed."""


class StampCounts(Struct, frozen=True):
    """Packets of an interface by who stamped them: the card (`hardware`), or the kernel; `error_ns`, how far stamps of
    the card may be off by the host's clock."""

    hardware_count: int = 0
    software_count: int = 0
    error_ns: int = 0


def add_statements(known: dict[str, StampCounts], statements: Iterable[str]) -> None:
    """Add what an agent states to the counts by interface."""
    for statement in statements:
        if (found := _parse(statement)) is not None:
            interface, counts = found
            before = known.get(interface, StampCounts())
            known[interface] = StampCounts(
                before.hardware_count + counts.hardware_count,
                before.software_count + counts.software_count,
                max(before.error_ns, counts.error_ns),
            )


def _parse(statement: str) -> tuple[str, StampCounts] | None:
    words = dict(word.partition("=")[::2] for word in statement.removeprefix(PREFIX).split(" "))
    numbers = [words.get(name, "") for name in ("hardware", "software", "error_ns")]
    if not words.get("interface") or not all(
        text.isascii() and text.isdecimal() and len(text) < 19 for text in numbers
    ):
        return None
    counts = StampCounts(*map(int, numbers))
    return (words["interface"], counts) if counts.error_ns <= MOST_ERROR_NS else None
