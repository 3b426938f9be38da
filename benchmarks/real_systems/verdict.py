"""The result of comparing one statement with the truth, and when a duration counts as right."""

from dataclasses import dataclass

WITHIN_NS = 1_000_000
WITHIN_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Verdict:
    """One statement of the product, what is true, what it said, and whether that is right."""

    statement: str
    truth: str
    said: str
    right: bool


def within(said_ns: float | None, bounds_ns: tuple[float, float], resolution_ns: float = 0) -> bool:
    """Whether a duration is right. Arguments: bounds_ns: the least and the most that it can truly have been."""
    low, high = bounds_ns
    if said_ns is None:
        return False
    slack = [max(WITHIN_NS, WITHIN_SHARE * true) + resolution_ns for true in bounds_ns]
    return low - slack[0] <= said_ns <= high + slack[1]


def in_ms(ns: float | None) -> str:
    """A duration in words."""
    return "nothing" if ns is None else f"{ns / 1e6:.2f} ms"
