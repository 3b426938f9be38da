"""Selects numbers: which container, which object, how many bytes. The syntax is that of COSBench's selectors.

    c(64)            always 64
    u(1,50)          evenly at random
    r(1,50)          one after the other, then from the start again; `1-50` is an old way to write it
    s(1,50)          the same
    h(1|10|80,11|99|20)  a histogram: from 1 to 10 with weight 80, from 11 to 99 with weight 20

Where a work divides its containers or objects (`division`), each worker of all drivers has a run of them of its own:
`share` says which, so that all runs together are the whole and differ by one at most in length.

Source: COSBench User Guide 2.8.6, "Selectors"; sizes are decimal there (KB = 1,000).
"""

import dataclasses
import itertools
import random
import re
from collections.abc import Callable
from typing import Literal, cast

Kind = Literal["c", "u", "r", "s", "h"]
UNITS = {"GB": 10**9, "MB": 10**6, "KB": 10**3, "B": 1}
Next = Callable[[], int]

_FORM = re.compile(r"([curs])\((\d+)(?:,(\d+))?\)")
_OLD_RANGE = re.compile(r"(\d+)-(\d+)")
_HISTOGRAM = re.compile(r"h\((\d+\|\d+\|\d+(?:,\d+\|\d+\|\d+)*)\)")


@dataclasses.dataclass(frozen=True)
class Bucket:
    """Numbers from `low` to `high`, selected in proportion to `weight`."""

    low: int
    high: int
    weight: int


@dataclasses.dataclass(frozen=True)
class Selector:
    """A way to choose numbers from `low` to `high`."""

    kind: Kind
    low: int
    high: int
    buckets: tuple[Bucket, ...] = ()  # of kind h

    def __str__(self) -> str:
        if self.kind == "h":
            return "h(" + ",".join(f"{b.low}|{b.high}|{b.weight}" for b in self.buckets) + ")"
        return f"c({self.low})" if self.kind == "c" else f"{self.kind}({self.low},{self.high})"

    def share(self, index: int, count: int) -> "Selector | None":
        """The run of numbers of one worker (from 0) of `count`; None if there are more workers than numbers."""
        base, extra = divmod(self.high - self.low + 1, count)
        low = self.low + base * index + min(extra, index)
        high = low + base + (index < extra) - 1
        return dataclasses.replace(self, low=low, high=high) if low <= high else None

    def chooser(self, rng: random.Random) -> Next:
        """A function that returns the next number at each call."""
        if self.kind == "c":
            return lambda: self.low
        if self.kind == "u":
            span = self.high - self.low + 1
            return lambda: self.low + int(rng.random() * span)  # three times as fast as randint
        if self.kind == "h":
            return self._from_histogram(rng)
        return self._turns()

    def _turns(self) -> Next:
        """One after the other, then from the first again."""
        state = itertools.count()
        span = self.high - self.low + 1
        return lambda: self.low + next(state) % span

    def _from_histogram(self, rng: random.Random) -> Next:
        weights = list(itertools.accumulate(bucket.weight for bucket in self.buckets))

        def choose() -> int:
            bucket = rng.choices(self.buckets, cum_weights=weights)[0]
            return rng.randint(bucket.low, bucket.high)

        return choose


@dataclasses.dataclass(frozen=True)
class Sizes:
    """A way to choose sizes."""

    selector: Selector
    unit_bytes: int

    def __str__(self) -> str:
        unit = next(name for name, size in UNITS.items() if size == self.unit_bytes)
        return f"{self.selector}{unit}"


def parse_selector(text: str) -> Selector:
    """A selector from its text. Raises: ValueError, whose text says what was expected."""
    text = text.replace(" ", "")
    if match := _HISTOGRAM.fullmatch(text):
        return _histogram(match[1])
    if match := _OLD_RANGE.fullmatch(text):
        return _range_selector("r", int(match[1]), int(match[2]))
    match = _FORM.fullmatch(text)
    if match is None or (match[1] == "c") != (match[3] is None):
        raise ValueError(f"{text!r} is no selector; expected c(N), u(A,B), r(A,B), s(A,B) or h(A|B|WEIGHT,…)")
    return _range_selector(match[1], int(match[2]), int(match[3] or match[2]))


def parse_sizes(text: str) -> Sizes:
    """Sizes from their text, for example `c(64)KB`. Raises: ValueError."""
    text = text.replace(" ", "")
    selector, parenthesis, unit = text.rpartition(")")
    if unit not in UNITS:
        raise ValueError(f"{text!r} has no unit; expected B, KB, MB or GB at its end")
    return Sizes(parse_selector(selector + parenthesis), UNITS[unit])


def constant(number: int) -> Selector:
    """Always that number."""
    return Selector("c", number, number)


def _range_selector(kind: str, low: int, high: int) -> Selector:
    if low > high:
        raise ValueError(f"{kind}({low},{high}) is empty; the first number must not exceed the second")
    return Selector(cast(Kind, kind), low, high)


def _histogram(text: str) -> Selector:
    buckets = tuple(Bucket(*map(int, part.split("|"))) for part in text.split(","))
    for bucket in buckets:
        if bucket.low > bucket.high:
            raise ValueError(f"the range {bucket.low}|{bucket.high} of h(…) is empty")
    if not any(bucket.weight for bucket in buckets):
        raise ValueError("all weights of h(…) are 0")
    return Selector("h", min(b.low for b in buckets), max(b.high for b in buckets), buckets)
