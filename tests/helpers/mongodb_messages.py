"""Messages of MongoDB's wire protocol, made by the book (bsonspec.org; "MongoDB Wire Protocol")."""

import struct
from collections.abc import Mapping, Sequence

Value = str | int | float | bool | bytes | Mapping[str, "Value"] | Sequence["Value"]
REPLY, QUERY, COMPRESSED, MSG = 1, 2004, 2012, 2013
MORE_TO_COME, EXHAUST_ALLOWED = 2, 1 << 16


def document(fields: Mapping[str, Value]) -> bytes:
    """A BSON document."""
    own = b"".join(_element(name, value) for name, value in fields.items())
    return struct.pack("<i", len(own) + 5) + own + b"\0"


def _element(name: str, value: Value) -> bytes:
    kind, content = _type_and_content(value)
    return bytes([kind]) + name.encode() + b"\0" + content


def _type_and_content(value: Value) -> tuple[int, bytes]:
    match value:
        case bool():
            return 8, bytes([value])
        case float():
            return 1, struct.pack("<d", value)
        case int():
            return (16, struct.pack("<i", value)) if abs(value) < 1 << 31 else (18, struct.pack("<q", value))
        case str():
            return 2, struct.pack("<i", len(value.encode()) + 1) + value.encode() + b"\0"
        case bytes():
            return 5, struct.pack("<iB", len(value), 0) + value
        case Mapping():
            return 3, document(value)
        case _:
            return 4, document({str(place): each for place, each in enumerate(value)})


def message(opcode: int, body: bytes, number: int = 1, answers: int = 0) -> bytes:
    """A message of any kind."""
    return struct.pack("<4i", 16 + len(body), number, answers, opcode) + body


def msg(
    fields: Mapping[str, Value],
    number: int = 1,
    answers: int = 0,
    flags: int = 0,
    documents: Sequence[Mapping[str, Value]] = (),
) -> bytes:
    """An OP_MSG with a command or an answer, and with documents in a section of their own."""
    body = struct.pack("<IB", flags, 0) + document(fields)
    if documents:
        own = b"documents\0" + b"".join(map(document, documents))
        body += struct.pack("<Bi", 1, len(own) + 4) + own
    return message(MSG, body, number, answers)


def query(fields: Mapping[str, Value], number: int = 1) -> bytes:
    """An OP_QUERY with a command."""
    return message(QUERY, bytes(4) + b"admin.$cmd\0" + struct.pack("<ii", 0, -1) + document(fields), number)


def reply(fields: Mapping[str, Value], number: int = 2, answers: int = 1) -> bytes:
    """An OP_REPLY with one document."""
    return message(REPLY, struct.pack("<iqii", 8, 0, 0, 1) + document(fields), number, answers)
