"""The viewer's binary messages, decoded by the book: an independent reading of `viewer/binary.py`'s format."""

import json
import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Message:
    """A decoded message."""

    mode: str
    from_ns: int
    to_ns: int
    count: int
    bin_ns: int
    columns: dict[str, NDArray[np.generic]]
    shape: tuple[int, int, int]  # of the counts


def decode(body: bytes) -> Message:
    """Read one message; every array must lie within it, at a multiple of 8 bytes."""
    (size,) = struct.unpack_from("<I", body)
    header = json.loads(body[4 : 4 + size])
    columns = {}
    for column in header["columns"]:
        begin = 4 + size + column["offset"]
        assert begin % 8 == 0
        dtype = np.dtype("<" + column["dtype"])
        end = begin + dtype.itemsize * column["length"]
        assert end <= len(body)
        columns[column["name"]] = np.frombuffer(body[begin:end], dtype=dtype)
    shape = (header.get("pairs", 0), header.get("classes", 0), header.get("bins", 0))
    if "cells" in columns:  # all others are empty
        whole = np.zeros((shape[0] * shape[1], shape[2]), np.int64)
        whole[columns["cells"].astype(int)] = columns["counts"].reshape(len(columns["cells"]), shape[2])
        columns["counts"] = whole.reshape(-1)
    return Message(
        header["mode"], header["from"], header["to"], header.get("count", 0), header.get("bin", 0), columns, shape
    )
