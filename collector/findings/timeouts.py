"""Recognises known timeouts by the length of waits (`timeouts.toml`)."""

import tomllib
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files

from msgspec import Struct

LATEST_SHARE = 0.1
"""A timeout may fire late by this share, if the waiting process is busy."""
EARLIEST_SHARE = 0.005
NS_PER_S = 1e9


def fingerprint(waits_for: str, waits_ns: Sequence[int], services: Iterable[str]) -> str:
    """A clause such as `; 10 s is Swift's node_timeout of a proxy` if the waits have that length; otherwise empty.

    Arguments: `waits_for`, `connect` or `answer`; all waits (ns); the services waited for: a product's timeout is named
    only if they are known to be that product's.
    """
    shown = " ".join(services).lower()
    for known in _known_timeouts():
        near = [(1 - EARLIEST_SHARE) * known.ns <= wait <= (1 + LATEST_SHARE) * known.ns for wait in waits_ns]
        of_product = known.product in shown
        if of_product and known.waits_for == waits_for and near and sum(near) * 2 > len(near):
            return f"; {known.ns / NS_PER_S:g} s is {known.name}"
    return ""


class _Timeout(Struct, frozen=True):
    name: str
    product: str  # a word in its services' names; "" if any product has it
    waits_for: str
    ns: float


@cache
def _known_timeouts() -> tuple[_Timeout, ...]:
    document = tomllib.loads(files("collector.findings").joinpath("timeouts.toml").read_text(encoding="utf-8"))
    return tuple(
        _Timeout(entry["name"], entry.get("product", ""), entry["waits_for"], float(entry["seconds"]) * NS_PER_S)
        for entry in document["timeout"]
    )
