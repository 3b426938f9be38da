"""Encodes columns as bytes for the browser: u32 length of the header, the header (JSON), then the arrays.

Little-endian. The header names each array with its dtype, its place from the end of the header (a multiple of 8, the
header being padded with spaces) and its length, so a browser makes typed arrays of them without a copy. Times are
float64 ns since the trace's start, NaN where not seen; they are whole numbers below 2^53, so exact.
"""

import json
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from collector.queries import MISSING_NS, Arrows, Strip

Header = Mapping[str, int | str]
Sample = tuple[Arrows, int]
"""Some arrows, and how many each stands for."""
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
    return encode({"mode": "arrows", "from": from_ns, "to": to_ns, "count": count}, _arrow_columns(arrows))


def encode_counts(
    mode: str, from_ns: int, bin_ns: int, counts: NDArray[np.uint32], count: int, sample: Sample | None = None
) -> bytes:
    """Counts by what (`mode`: pairs for `density`, rows and directions for `ends`), class and bin, as an array `counts`
    of those cells (`cells`: what * classes + class) that have any; `count` hops are anchored in the view that was asked
    for. A sample of the arrows goes with them, each of which stands for `step`."""
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
    if arrows.uncertain.any():
        columns["uncertain"] = arrows.uncertain
    if len(arrows.number) <= 2_000:  # labels and whiskers are drawn only where there is room for them
        columns["offset"] = arrows.stream_start.astype(np.float64)
        columns["uncertainty"] = arrows.uncertainty_ns
    return columns


def times(values: NDArray[np.int64]) -> NDArray[np.float64]:
    """Times as float64, NaN for those not seen."""
    assert bool((np.abs(values[values != MISSING_NS]) < MOST_EXACT).all()), "a time is not exact as a float64"
    return np.where(values == MISSING_NS, np.nan, values.astype(np.float64))
