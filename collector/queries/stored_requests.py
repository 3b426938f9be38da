"""Keeps in the index what pages ask about all requests, so that none of them waits until it is made of the exchanges.

Of the table (`collector.queries.request_table`) the shelf has the columns that `SpanTrees` lacks, about 20 bytes a
request; besides, the classes, and when requests were slow.
"""

from functools import cached_property

import numpy as np
import polars as pl
from msgspec import Struct

from collector.queries.request_table import RequestClass, request_classes, request_table
from collector.queries.slowness import Slowness, slowness
from collector.queries.span_trees import SpanTrees
from collector.queries.timeline.shelf import Shelf
from collector.requests.outcomes import Outcome

SLOWNESS_BINS = 1_000
_NUMBERS = ("bytes", "ended", "background", "outermost", "in_flight")
_NAMES = ("class", "outcome")


class _Documents(Struct, frozen=True):
    """What is no array."""

    names: dict[str, tuple[str, ...]]  # of each column of names, what its numbers mean
    classes: tuple[RequestClass, ...]
    slowness_bin_ns: int


def build_requests(shelf: Shelf, trees: SpanTrees, duration_ns: int) -> None:
    """Store the data of `StoredRequests` on the shelf, of a trace that is so long. Cost: as `request_table`."""
    table = request_table(trees.frame)
    for name in _NUMBERS:
        shelf.put(f"request-{name}", table[name].to_numpy())
    names = {name: tuple(table[name].unique(maintain_order=True).cast(pl.String)) for name in _NAMES}
    for name, texts in names.items():
        shelf.put(f"request-{name}", table[name].cast(pl.Enum(texts)).to_physical().to_numpy())
    slow = slowness(table, duration_ns, SLOWNESS_BINS)
    shelf.put("slowness", slow.ratio)
    shelf.put_document("requests", _Documents(names, request_classes(table), slow.bin_ns))


class StoredRequests:
    """All requests of a trace. Safe to use from several threads: a cached result is only replaced by an equal one."""

    def __init__(self, shelf: Shelf, trees: SpanTrees) -> None:
        self._shelf, self._trees = shelf, trees
        self._documents = shelf.document("requests", _Documents)
        self.classes = self._documents.classes

    @property
    def slowness(self) -> Slowness:
        """When clients' requests were slow, over the whole trace."""
        return Slowness(self._documents.slowness_bin_ns, self._shelf.array("slowness"))

    @cached_property
    def table(self) -> pl.DataFrame:
        """As `request_table`. Memory: 12 bytes a request, beside pages of mapped files."""
        trees = self._trees
        times = {"start_ns": trees.start_ns, "end_ns": trees.end_ns, "duration_ns": trees.durations_ns}
        stored = {name: self._shelf.array(f"request-{name}") for name in _NUMBERS}
        return (
            pl.DataFrame({name: np.asarray(values) for name, values in (times | stored).items()})
            .with_columns(
                *(self._category(name) for name in _NAMES),
                number=pl.int_range(pl.len(), dtype=pl.Int32),
            )
            .with_columns(failed=pl.col("outcome") == Outcome.FAILED)
        )

    def _category(self, column: str) -> pl.Series:
        texts = pl.Series(column, self._documents.names[column], pl.String).cast(pl.Categorical)
        return texts.gather(np.asarray(self._shelf.array(f"request-{column}")))
