"""Measures of requests that words choose, for triggers and for assertions: percentiles, and whether words can find
anything.

Source: the words are those of `collector.queries.search`.
"""

import math
import re

import numpy as np
from numpy.typing import NDArray

from collector.queries.search import ADDRESS, DURATION, RULES
from collector.requests.outcomes import OUTCOMES
from collector.requests.results import CLASSES

AGGREGATE = r"p\d{1,2}(?:\.\d{1,3})?|mean|max"
_KEY = re.compile(r"[A-Za-z_]+")


class WordError(ValueError):
    """A word that can find nothing. Arguments: its place among the characters, what is wrong, what to do."""

    def __init__(self, at: int, what: str, remedy: str) -> None:
        super().__init__(what)
        self.at, self.what, self.remedy = at, what, remedy


def check_words(words: str) -> None:
    """Raises: WordError for a word of a search that can find nothing."""
    for found in re.finditer(r"\S+", words):
        at, word = found.start(), found[0]
        if word[0] in "<>" and DURATION.fullmatch(word) is None:
            raise WordError(at, f"{word!r} is no duration", "write >50ms, without a space")
        key, colon, value = word.partition(":")
        if not colon or not _KEY.fullmatch(key) or ADDRESS.fullmatch(word):
            continue
        name = key.lower()
        if name not in RULES:
            raise WordError(at, f"nothing is searched by {key!r}", f"there are: {', '.join(sorted(RULES))}, finding")
        wrong_status = name == "status" and not value.isdecimal() and value.lower() not in ("error", *CLASSES)
        if not value or wrong_status or (name == "outcome" and value.lower() not in OUTCOMES):
            known = {"status": ["a number", "error", *CLASSES], "outcome": OUTCOMES}.get(name, ["any text"])
            raise WordError(at + len(key) + 1, f"{value!r} is no {name}", f"there are: {', '.join(known)}")


def aggregate_ns(name: str, ascending_ns: NDArray[np.int64]) -> int:
    """A percentile (`p99`, by nearest rank), the mean or the maximum of durations."""
    if name == "mean":
        return round(float(ascending_ns.mean()))
    if name == "max":
        return int(ascending_ns[-1])
    rank = math.ceil(float(name[1:]) / 100 * len(ascending_ns))
    return int(ascending_ns[max(1, rank) - 1])
