"""Defines the columns of the index: those of each hop, and those of pairs of ends."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import fields
from numpy.typing import NDArray

from collector.queries.timeline.paged import fetch_rows
from collector.queries.timeline.shelf import Shelf, prefetch
from collector.trace.schema import HopKind, HopState
from collector.trace.time_columns import Int64Array

MISSING_NS = np.iinfo(np.int64).min
"""In place of an unknown time."""
NO_LANE = 0xFFFF
"""Instead of a lane that is not known: the other end was not captured."""
NO_SERVICE = 0xFF
"""Instead of a service: the end is the connection's client."""
KINDS = tuple(HopKind)
STATES = tuple(HopState)
MOST_UNCERTAIN_NS = 0xFFFF_FFFE
"""Uncertainties are kept up to this."""
UNCERTAINTY_UNKNOWN = 0xFFFF_FFFF

Rows = NDArray[np.intp] | slice


class ArrowClass(IntEnum):
    """The class of an arrow, by what a reader looks for first: trouble before kind."""

    DATA = 0
    HANDSHAKE = 1  # SYN, SYN-ACK, FIN
    ACK = 2  # also keepalives and window probes
    RETRANSMISSION = 3
    LOST = 4  # lost on the network, or a reset
    ONE_SIDED = 5  # no partner: dropped by the capture, outside its window, ambiguous or unmatched
    EARLY = 6  # received before it was sent: so far, clocks are proven wrong


PROBLEM_CLASSES = (ArrowClass.RETRANSMISSION, ArrowClass.LOST, ArrowClass.EARLY)


class Seen(IntEnum):
    """Which ends of a hop were seen."""

    BOTH = 0
    SENT = 1
    RECEIVED = 2


class CarriedColumn(Struct, frozen=True):
    """How the index keeps a column of the table `hops` whose values queries pass on: in as few bytes as it needs."""

    dtype: type[np.generic]
    missing: int  # in place of null
    most: int | None = None  # greater values are kept as this


CARRIED = {
    "attempt": CarriedColumn(np.uint8, missing=1, most=255),
    "stream_start": CarriedColumn(np.int64, missing=0),
    "uncertainty_ns": CarriedColumn(np.uint32, missing=UNCERTAINTY_UNKNOWN, most=MOST_UNCERTAIN_NS),
    "message_kinds": CarriedColumn(np.uint8, missing=0),
}
"""Columns of `hops` that answers have as the table has them; to show one more, add it here."""

OWN_COLUMNS: dict[str, type[np.generic]] = {
    "anchor_ns": np.int64,
    "received_ns": np.int64,  # MISSING_NS if not seen
    "seen": np.uint8,  # Seen
    "pair": np.uint32,  # row of `Pairs`
    "kind": np.uint8,  # place in KINDS
    "state": np.uint8,  # place in STATES
    "arrow_class": np.uint8,  # ArrowClass
    "size_bytes": np.uint32,
    "span": np.int32,  # place among the trace's spans, or -1
    "row": np.uint32,  # in the table `hops`
}
"""Columns that the index makes of those of `hops`."""
COLUMNS = OWN_COLUMNS | {name: column.dtype for name, column in CARRIED.items()}
"""The columns of each hop, sorted by anchor."""
RAW_COLUMNS: dict[str, type[np.generic]] = {"sent_raw_ns": np.int64, "received_raw_ns": np.int64}
"""Additional columns if a host's clock was corrected: its own times, relative to the trace's start."""


class Pairs(Struct, frozen=True):
    """Directed pairs of ends in use, one element for each. An end is a host's lane, the process that owns the
    connection there and, at a connection's server, the service that was asked for."""

    source: NDArray[np.uint16]  # lane, or NO_LANE
    target: NDArray[np.uint16]
    service: NDArray[np.uint8]  # place among the trace's services
    to_server: NDArray[np.bool_]  # the target is the connection's server; else the source is
    client_process: NDArray[np.uint8]  # place among the trace's processes
    server_process: NDArray[np.uint8]

    @classmethod
    def of_shelf(cls, shelf: Shelf) -> "Pairs":
        """Those that lie on a shelf."""
        return cls(*(shelf.array(f"pairs-{each.name}") for each in fields(cls)))

    def store(self, shelf: Shelf) -> None:
        """Put them on a shelf."""
        for each in fields(self):
            shelf.put(f"pairs-{each.name}", getattr(self, each.name))

    def __len__(self) -> int:
        return len(self.source)

    @property
    def source_service(self) -> NDArray[np.uint8]:
        """The service at the source, NO_SERVICE where it is the client."""
        return np.where(self.to_server, NO_SERVICE, self.service).astype(np.uint8)

    @property
    def target_service(self) -> NDArray[np.uint8]:
        """The service at the target, NO_SERVICE where it is the client."""
        return np.where(self.to_server, self.service, NO_SERVICE).astype(np.uint8)

    @property
    def source_process(self) -> NDArray[np.uint8]:
        """The process at the source."""
        return np.where(self.to_server, self.client_process, self.server_process).astype(np.uint8)

    @property
    def target_process(self) -> NDArray[np.uint8]:
        """The process at the target."""
        return np.where(self.to_server, self.server_process, self.client_process).astype(np.uint8)


class HopColumns(Struct, frozen=True):
    """The hops of a trace; see `COLUMNS`. The arrays may be files, so take few rows of them at a time."""

    anchor_ns: Int64Array
    received_ns: Int64Array
    seen: NDArray[np.uint8]
    pair: NDArray[np.uint32]
    kind: NDArray[np.uint8]
    state: NDArray[np.uint8]
    arrow_class: NDArray[np.uint8]
    size_bytes: NDArray[np.uint32]
    span: NDArray[np.int32]
    row: NDArray[np.uint32]
    carried: Mapping[str, NDArray[Any]]  # as `CARRIED`
    sent_raw_ns: Int64Array | None = None
    received_raw_ns: Int64Array | None = None

    @classmethod
    def of_shelf(cls, shelf: Shelf) -> "HopColumns":
        """The columns that lie on a shelf."""
        raw = {name: shelf.array(name) for name in RAW_COLUMNS} if shelf.holds("sent_raw_ns") else {}
        own = {name: shelf.array(name) for name in OWN_COLUMNS}
        return cls(**own, carried={name: shelf.array(name) for name in CARRIED}, **raw)

    def __len__(self) -> int:
        return len(self.anchor_ns)

    def prefetch(self, first: int, last: int) -> None:
        """Start reading these rows from disk, or read them from an object, if they are there: all columns at once."""
        prefetch(self._all(), first, last)
        fetch_rows(self._all(), slice(first, last))

    def fetch(self, rows: NDArray[np.intp]) -> None:
        """Read these rows, if they are in an object: all columns at once."""
        fetch_rows(self._all(), rows)

    def _all(self) -> list[NDArray[Any]]:
        own = (getattr(self, name) for name in (*OWN_COLUMNS, *RAW_COLUMNS))
        return [column for column in (*own, *self.carried.values()) if column is not None]

    def sent_ns(self, rows: Rows) -> Int64Array:
        """When these hops were sent, MISSING_NS where that was not seen."""
        return np.where(self.seen[rows] == Seen.RECEIVED, MISSING_NS, self.anchor_ns[rows])
