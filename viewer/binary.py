"""Columns as bytes for the browser: u32 length of the header, the header (JSON), then the arrays.

Little-endian. The header names each array with its dtype, its place from the end of the header (a multiple of 8, the
header being padded with spaces) and its length, so a browser makes typed arrays of them without a copy. Times are
float64 ns since the trace's start, NaN where not seen; they are whole numbers below 2^53, so exact.
"""

import json
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from collector.queries import MISSING_NS, Arrows, DensityCounts

Header = Mapping[str, int | str]
MOST_EXACT = 1 << 53


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


def encode_arrows(arrows: Arrows, from_ns: int, to_ns: int, count: int) -> bytes:
    """The arrows that overlap [from_ns, to_ns]; `count` of them are anchored in the view that was asked for."""
    header: Header = {"mode": "arrows", "from": from_ns, "to": to_ns, "count": count}
    columns: dict[str, NDArray[np.generic]] = {
        "number": arrows.number,
        "sent": times(arrows.sent_ns),
        "received": times(arrows.received_ns),
        "pair": arrows.pair.astype(np.uint16) if int(arrows.pair.max(initial=0)) < 1 << 16 else arrows.pair,
        "cls": arrows.arrow_class,
        "kind": arrows.kind,
        "state": arrows.state,
        "attempt": arrows.attempt,
        "size": arrows.size_bytes,
        "request": arrows.request,
    }
    if len(arrows.number) <= 2_000:  # labels are drawn only where there is room for them
        columns["offset"] = arrows.stream_start.astype(np.float64)
    return encode(header, columns)


def encode_density(density: DensityCounts, count: int) -> bytes:
    """Counts by pair, class and bin; `count` hops are anchored in the view that was asked for."""
    pairs, classes, bins = density.counts.shape
    header: Header = {
        **{"mode": "density", "from": density.from_ns, "to": density.from_ns + bins * density.bin_ns},
        **{"bin": density.bin_ns, "bins": bins, "pairs": pairs, "classes": classes, "count": count},
    }
    return encode(header, {"counts": density.counts.reshape(-1)})


def times(values: NDArray[np.int64]) -> NDArray[np.float64]:
    """Times as float64, NaN for those not seen."""
    assert bool((np.abs(values[values != MISSING_NS]) < MOST_EXACT).all()), "a time is not exact as a float64"
    return np.where(values == MISSING_NS, np.nan, values.astype(np.float64))
