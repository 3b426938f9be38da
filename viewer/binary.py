"""Encodes columns as bytes for the browser: u32 length of the header, the header (JSON), then the arrays.

Little-endian. The header names each array with its dtype, its place from the end of the header (a multiple of 8, the
header being padded with spaces) and its length, so a browser makes typed arrays of them without a copy. Times are
float64 ns since the trace's start, NaN where not seen; they are whole numbers below 2^53, so exact.
"""

import json
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from collector.queries import MISSING_NS, Arrows, LaneBands, Strip

Peers = Sequence[tuple[str | None, str | None]]
"""What the sender and the receiver of each arrow are called, if they were not captured."""
Header = Mapping[str, int | str | Peers]
Sample = tuple[Arrows, int]
"""Some arrows, and how many each stands for."""
MOST_EXACT = 1 << 53
RATIO_UNIT, MOST_RATIO_UNITS = 0.01, (1 << 16) - 1
"""Ratios are sent in hundredths."""
MOST_DETAILED = 2_000
"""Arrows of a message that has all of their columns."""


class Column(Struct, frozen=True):
    """A column of arrows in a message; also its type in the browser (`viewer.constants`)."""

    name: str
    dtypes: tuple[str, ...]  # as numpy has them, without the order of bytes
    values: Callable[[Arrows], NDArray[np.generic]]
    meaning: str
    is_sent: Callable[[Arrows], bool] = lambda arrows: True


def times(values: NDArray[np.int64]) -> NDArray[np.float64]:
    """Times as float64, NaN for those not seen."""
    assert bool((np.abs(values[values != MISSING_NS]) < MOST_EXACT).all()), "a time is not exact as a float64"
    return np.where(values == MISSING_NS, np.nan, values.astype(np.float64))


def _pair(arrows: Arrows) -> NDArray[np.generic]:
    return arrows.pair.astype(np.uint16) if int(arrows.pair.max(initial=0)) < 1 << 16 else arrows.pair


def _is_detailed(arrows: Arrows) -> bool:
    """Labels and whiskers are drawn only where there is room for them."""
    return len(arrows.number) <= MOST_DETAILED


def _has_messages(arrows: Arrows) -> bool:
    return bool(arrows.carried["message_kinds"].any())


def _has_uncertain(arrows: Arrows) -> bool:
    return bool(arrows.uncertain.any())


ARROW_COLUMNS = (
    Column("number", ("u4",), lambda arrows: arrows.number, "the hop, by its rank in time within the trace"),
    Column("sent", ("f8",), lambda arrows: times(arrows.sent_ns), "ns since the trace's start; NaN if not seen"),
    Column("received", ("f8",), lambda arrows: times(arrows.received_ns), "as `sent`"),
    Column("pair", ("u2", "u4"), _pair, "place in `meta.pairs`"),
    Column("cls", ("u1",), lambda arrows: arrows.arrow_class, "one of `CLASS`"),
    Column("kind", ("u1",), lambda arrows: arrows.kind, "place in `meta.kinds`"),
    Column("state", ("u1",), lambda arrows: arrows.state, "place in `meta.states`"),
    Column("attempt", ("u1",), lambda arrows: arrows.carried["attempt"], "1 for the first"),
    Column("size", ("u4",), lambda arrows: arrows.size_bytes, "bytes"),
    Column("request", ("i4",), lambda arrows: arrows.request, "-1 for none"),
    Column("uncertain", ("u1",), lambda arrows: arrows.uncertain, "1: its call's parent is uncertain", _has_uncertain),
    Column(
        "messages", ("u1",), lambda arrows: arrows.carried["message_kinds"], "bits of `meta.messages`", _has_messages
    ),
    Column("offset", ("f8",), lambda arrows: arrows.carried["stream_start"].astype(np.float64), "bytes", _is_detailed),
    Column("uncertainty", ("u4",), lambda arrows: arrows.carried["uncertainty_ns"], "ns, of the delay", _is_detailed),
)
"""The columns of arrows, in the order in which a message has them. The browser's types are generated from this list."""


def encode(header: Header, columns: Mapping[str, NDArray[np.generic]]) -> bytes:
    """One message of named arrays."""
    places, parts, offset = [], [], 0
    for name, column in columns.items():
        raw = np.ascontiguousarray(column, dtype=column.dtype.newbyteorder("<")).tobytes()
        padding = -len(raw) % 8
        places.append({"name": name, "dtype": column.dtype.str[1:], "offset": offset, "length": column.size})
        parts.append(raw + b"\0" * padding)
        offset += len(raw) + padding
    text = json.dumps({**header, "columns": places}).encode()
    text += b" " * (-(len(text) + 4) % 8)
    return len(text).to_bytes(4, "little") + text + b"".join(parts)


def encode_arrows(arrows: Arrows, from_ns: int, to_ns: int, count: int, peers: Peers = ()) -> bytes:
    """The arrows that overlap [from_ns, to_ns]; `count` of them are anchored in the requested view."""
    header: Header = {"mode": "arrows", "from": from_ns, "to": to_ns, "count": count}
    return encode({**header, "peers": peers} if peers else header, _arrow_columns(arrows))


def encode_counts(
    mode: str, from_ns: int, bin_ns: int, counts: NDArray[np.uint32], count: int, sample: Sample | None = None
) -> bytes:
    """Counts by what (`mode`: pairs for `density`, rows and directions for `ends`), class and bin, as an array `counts`
    of those cells (`cells`: what * classes + class) that have any; `count` hops are anchored in the requested
    view. A sample of the arrows goes with them, each of which stands for `step`."""
    what, classes, bins = counts.shape
    flat = counts.reshape(what * classes, bins)
    cells = np.flatnonzero(flat.any(axis=1))
    header: dict[str, int | str] = {
        **{"mode": mode, "from": from_ns, "to": from_ns + bins * bin_ns, "count": count},
        **{"bin": bin_ns, "bins": bins, "pairs": what, "classes": classes, "step": sample[1] if sample else 0},
    }
    dtype = np.min_scalar_type(int(flat.max(initial=0)))
    columns = {"cells": cells.astype(np.uint32), "counts": flat[cells].astype(dtype).reshape(-1)}
    return encode(header, columns | (_arrow_columns(sample[0]) if sample else {}))


def encode_bands(bands: LaneBands, most_at_once: int) -> bytes:
    """Requests that hosts served, row after row, in bins of equal width: how many were under way in each, how many at
    once, and how slow (in hundredths of what is usual)."""
    rows, bins = bands.requests.shape
    header: Header = {
        **{"mode": "bands", "from": bands.from_ns, "to": bands.from_ns + bins * bands.bin_ns, "bin": bands.bin_ns},
        **{"bins": bins, "rowsCount": rows, "mostAtOnce": most_at_once},
    }
    ratio = np.minimum(np.rint(bands.ratio / RATIO_UNIT), MOST_RATIO_UNITS).astype(np.uint16)
    columns: dict[str, NDArray[np.generic]] = {
        **{"requests": bands.requests.reshape(-1), "atOnce": bands.at_once.reshape(-1)},
        **{"ratio": ratio.reshape(-1), "served": bands.served.astype(np.uint8)},
    }
    return encode(header, columns)


def encode_strips(strips: Sequence[Strip], from_ns: int, to_ns: int) -> bytes:
    """What the hosts used in [from_ns, to_ns), strip after strip, in bins of equal width."""
    header: Header = {"mode": "usage", "from": from_ns, "to": to_ns, "strips": len(strips)}
    columns: dict[str, NDArray[np.generic]] = {}
    for number, strip in enumerate(strips):
        columns[f"peak{number}"] = strip.peak
        columns[f"busiest{number}"] = strip.busiest
        columns[f"mean{number}"] = strip.mean
        header = {**header, f"name{number}": strip.name, f"unit{number}": strip.unit}
        columns[f"highest{number}"] = np.array([strip.highest])
    return encode(header, columns)


def _arrow_columns(arrows: Arrows) -> dict[str, NDArray[np.generic]]:
    columns = {column.name: column.values(arrows) for column in ARROW_COLUMNS if column.is_sent(arrows)}
    for column in ARROW_COLUMNS:
        assert column.name not in columns or columns[column.name].dtype.str[1:] in column.dtypes, column.name
    return columns
