"""Waits that look like a known timeout, by their length (`timeouts.toml`)."""

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

NEAR = 0.1
"""A timeout fires late by what the process that waits is busy with, never early."""
EARLY = 0.005
NS_PER_S = 1e9


def fingerprint(waits_for: str, waits_ns: Sequence[int], services: Iterable[str]) -> str:
    """`, as after 10 s: Swift's node_timeout of a proxy`, if the waits are of that length; else nothing.

    Arguments: `waits_for`, `connect` or `answer`; all waits, in ns; what was waited for: a product's timeout is named
    only of services that are shown to be that product's.
    """
    shown = " ".join(services).lower()
    for known in _known():
        near = [(1 - EARLY) * known.ns <= wait <= (1 + NEAR) * known.ns for wait in waits_ns]
        of_product = known.product in shown
        if of_product and known.waits_for == waits_for and near and sum(near) * 2 > len(near):
            return f"; {known.ns / NS_PER_S:g} s is {known.name}"
    return ""


@dataclass(frozen=True, slots=True)
class _Timeout:
    name: str
    product: str  # the word of its services' names; "" for what any has
    waits_for: str
    ns: float


@cache
def _known() -> tuple[_Timeout, ...]:
    document = tomllib.loads(files("collector.findings").joinpath("timeouts.toml").read_text(encoding="utf-8"))
    return tuple(
        _Timeout(entry["name"], entry.get("product", ""), entry["waits_for"], float(entry["seconds"]) * NS_PER_S)
        for entry in document["timeout"]
    )
