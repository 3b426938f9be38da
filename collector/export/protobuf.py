"""Protocol Buffers' wire format: enough of it to write the messages of other tools, and to read their short answers.

A message is its fields, one after the other, in whatever order; each is a tag (its number and its wire type) and a
value. A message within a message is a field of bytes.

Many messages of one layout are written at once (`Part`, `write_rows`): integers are padded with empty groups of seven
bits, which readers take up to ten bytes, so that all messages are of one length and together one array.

Source: protobuf.dev/programming-guides/encoding.
Limits: fields are not packed; groups, deprecated since long, are neither written nor read.
"""

import struct
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from collector.trace.time_columns import Int64Array

Octets = NDArray[np.uint8]
Part = bytes | Octets
"""What all messages have in common, or an array of rows × width, a row for each message."""
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types."""
BITS = 7
"""Of a number in each byte of a varint."""
_WHOLE = (1 << 64) - 1


def varint(value: int) -> bytes:
    """An integer; negative ones as 64 bits, as `int32` and `int64` have them."""
    rest, groups = value & _WHOLE, bytearray()
    while rest >= 1 << BITS:
        groups.append(rest & 127 | 128)
        rest >>= BITS
    groups.append(rest)
    return bytes(groups)


def field(number: int, value: int | float | str | bytes) -> bytes:
    """A field of a message: `int`, `bool`, `enum` as a varint, `double`, `string`, or bytes or a message."""
    if isinstance(value, float):
        return _tag(number, FIXED64) + struct.pack("<d", value)
    if isinstance(value, int):
        return _tag(number, VARINT) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _tag(number, BYTES) + varint(len(data)) + data


def fixed64(number: int, value: int) -> bytes:
    """A field of type `fixed64`."""
    return _tag(number, FIXED64) + struct.pack("<Q", value)


def _tag(number: int, wire_type: int) -> bytes:
    return varint(number << 3 | wire_type)


def int_fields(number: int, values: Int64Array) -> list[Part]:
    """The field of an integer, for each of many messages."""
    unsigned = values.astype(np.uint64)
    width = max(1, -(-int(unsigned.max(initial=0)).bit_length() // BITS))
    shifts = np.arange(0, BITS * width, BITS, dtype=np.uint64)
    groups = (unsigned[:, None] >> shifts & np.uint64(127)).astype(np.uint8)
    groups[:, :-1] |= 128
    return [_tag(number, VARINT), groups]


def fixed64_fields(number: int, values: Int64Array) -> list[Part]:
    """The field of type `fixed64`, for each of many messages."""
    return [_tag(number, FIXED64), values.astype("<u8").view(np.uint8).reshape(-1, 8)]


def message_fields(number: int, parts: list[Part]) -> list[Part]:
    """The field of a message, whose own fields are `parts`, for each of many messages."""
    return [_tag(number, BYTES) + varint(sum(map(_width, parts))), *parts]


def write_rows(parts: list[Part], count: int) -> bytes:
    """`count` messages, one after the other."""
    rows, at = np.empty((count, sum(map(_width, parts))), np.uint8), 0
    for part in parts:
        width = _width(part)
        rows[:, at : at + width] = np.frombuffer(part, np.uint8) if isinstance(part, bytes) else part
        at += width
    return rows.tobytes()


def _width(part: Part) -> int:
    return len(part) if isinstance(part, bytes) else part.shape[1]


def read_fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: number and value; of a `fixed` type and of what has a length, the bytes.

    Raises: `ValueError` for what is no message.
    """
    at = 0
    while at < len(message):
        tag, at = _read_varint(message, at)
        wire_type = tag & 7
        if wire_type == VARINT:
            number, at = _read_varint(message, at)
            yield tag >> 3, number
            continue
        if wire_type == BYTES:
            size, at = _read_varint(message, at)
        elif wire_type in (FIXED64, FIXED32):
            size = 8 if wire_type == FIXED64 else 4
        else:
            raise ValueError(f"no message: wire type {wire_type}")
        if at + size > len(message):
            raise ValueError(f"no message: {size} bytes at {at} of {len(message)}")
        yield tag >> 3, message[at : at + size]
        at += size


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    """The number there, and where it ends."""
    value = 0
    for place, octet in enumerate(message[at : at + 10]):
        value |= (octet & 127) << BITS * place
        if octet < 128:
            return value & _WHOLE, at + place + 1
    raise ValueError(f"no message: no end of the number at {at}")
