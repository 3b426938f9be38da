"""Waits that look like a known timeout, by their length (`knowledge.toml`)."""

from collections.abc import Sequence

from collector.findings.requests import knowledge

NEAR = 0.1
"""A timeout fires late by what the process that waits is busy with, never early."""
EARLY = 0.005
NS_PER_S = 1e9


def fingerprint(waits_for: str, waits_ns: Sequence[int]) -> str:
    """`, as after 10 s: Swift's node_timeout of a proxy`, if the waits are of that length; else nothing.

    Arguments: `waits_for`, `connect` or `answer`; all waits, in ns.
    """
    for entry in knowledge()["timeout"]:
        length_ns = float(entry["seconds"]) * NS_PER_S  # type: ignore[index]
        near = [(1 - EARLY) * length_ns <= wait <= (1 + NEAR) * length_ns for wait in waits_ns]
        if entry["waits_for"] == waits_for and near and sum(near) * 2 > len(near):  # type: ignore[index]
            return f"; {entry['seconds']:g} s is {entry['name']}"  # type: ignore[index]
    return ""
