"""Declares a threshold: a number by which findings are judged, with its default and the reason for it.

    @dataclass(frozen=True, slots=True)
    class ClockThresholds:
        offset_least_ns: int = threshold(10_000_000, "NTP keeps hosts of a network within a few ms (RFC 5905 §4)")

A group of thresholds is declared in the module that judges by it; the name of each ends with its unit.
`collector.findings.thresholds` joins all groups and reads the values that an operator sets.
"""

from dataclasses import field
from typing import TypeVar

T = TypeVar("T", int, float)


def threshold(default: T, reason: str) -> T:
    """A field of a frozen dataclass. Arguments: `reason`, why the default is what it is: a source, or evidence."""
    return field(default=default, metadata={"reason": reason})
