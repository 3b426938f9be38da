"""Finds how connections change on the way, from their messages: to which protocol, how an end said it would close, and
which WebSocket messages each transfer begins.

A connection is recognised by how its directions begin (`collector.hops.messages`). It changes its protocol where HTTP
answers 101 or accepts a CONNECT, and where a protocol goes on inside TLS (STARTTLS, PostgreSQL's SSLRequest, MySQL's).
It has changed to another protocol if messages of that one are read in both directions, in each behind the first byte
and behind all messages of the first protocol.

Cost: one pass over the kinds of messages; more only for connections with messages of another protocol than the first,
and for those that say how they close.
"""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from collector import _core
from collector.capture_files.records import Columns, HeadKind
from collector.trace.arrow import indices, numbers
from collector.trace.schema import MessageKinds

CHANGED = {
    HeadKind.HTTP2_FRAME: "http/2",
    HeadKind.TLS_RECORD: "tls",
    HeadKind.WEBSOCKET_FRAME: "websocket",
}
"""The protocols to which connections change, by the kind of their messages."""
GOAWAY = 7
"""Type of HTTP/2's frame by which an end says that it closes the connection (RFC 9113 §6.8)."""
NO_ERROR = "GOAWAY NO_ERROR"


class Opcode(IntEnum):
    """Column `frame_kind` of a WebSocket's frame (RFC 6455 §5.2)."""

    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class Changes(NamedTuple):
    """Of connections by their place."""

    changed_to: pa.DictionaryArray
    closing: pa.DictionaryArray

    def columns(self) -> dict[str, pa.DictionaryArray]:
        """As columns of the table `connections`."""
        return self._asdict()


def connection_changes(messages: pa.Table, protocols: pa.Array, first_id: int) -> Changes:
    """The changes of connections.

    Arguments: the table `messages` of these connections; their protocols, in the order of their ids, which begin with
    `first_id`.
    """
    kind = numbers(messages["head_kind"])
    place = numbers(messages["connection_id"]) - first_id
    protocol, names = indices(protocols)
    changed: dict[int, str] = {}
    for each, name in CHANGED.items():
        is_other = protocol != (names.index(name) if name in names else len(names))
        if is_other.any():
            of_kind = np.flatnonzero(kind == each)
            rows = of_kind[is_other[place[of_kind]]]
            changed |= dict.fromkeys(_with_change(messages, kind, place, rows, each), name)
    return Changes(_texts(changed, len(protocols)), _texts(_closings(messages, kind, place), len(protocols)))


def message_kinds(messages: pa.Table, hops: Columns, hosts: pa.Array) -> NDArray[np.uint8]:
    """The column `message_kinds` of hops: which WebSocket messages, and parts of such, begin in the packets of each.

    Arguments: the table `messages`; columns of hops, with hosts as places in `hosts`.
    """
    rows = np.flatnonzero(numbers(messages["head_kind"]) == HeadKind.WEBSOCKET_FRAME)
    found = np.zeros(len(hops["send_frame"]), dtype=np.uint8)
    if not len(rows):
        return found
    frames = messages.select(["host", "frame", "frame_kind"]).take(pa.array(rows))
    host, names = indices(frames["host"])
    every: list[str | None] = hosts.to_pylist()
    code = np.array([*(every.index(name) for name in names), -1], dtype=np.int64)[host]
    bit = np.zeros(int(max(Opcode)) + 1, dtype=np.uint8)
    for opcode in Opcode:
        bit[opcode] = MessageKinds[opcode.name]
    packets, group = np.unique(_packet_key(code, numbers(frames["frame"])), return_inverse=True)
    bits = np.zeros(len(packets), dtype=np.uint8)
    np.bitwise_or.at(bits, group, bit[numbers(frames["frame_kind"])])
    for end in ("send", "receive"):
        key = _packet_key(hops[f"{end}_host"].astype(np.int64), hops[f"{end}_frame"])
        at = np.minimum(np.searchsorted(packets, key), len(packets) - 1)
        found |= np.where(packets[at] == key, bits[at], 0).astype(np.uint8)
    return found


def _packet_key(host: NDArray[np.int64], frame: NDArray[np.integer]) -> NDArray[np.int64]:
    return (host << 32) + frame.astype(np.int64)


def _with_change(
    messages: pa.Table, kind: NDArray[np.uint8], place: NDArray[np.int64], rows: NDArray[np.int64], changed: HeadKind
) -> Iterator[int]:
    """Places of the connections that change to the protocol of messages of the kind `changed`. Arguments: kinds and
    connections of all messages; `rows`, messages of that kind on connections that begin with another protocol."""
    if not len(rows):
        return
    mine = np.flatnonzero(np.isin(place, np.unique(place[rows])) & (kind != HeadKind.STREAM_MARK))
    seen = pl.DataFrame({
        "place": place[mine],
        "from_client": messages["from_client"].to_numpy()[mine],
        "at": numbers(messages["stream_offset"])[mine],
        "is_new": kind[mine] == changed,
    })  # fmt: skip
    sides = seen.group_by("place", "from_client").agg(
        first=pl.col("at").filter("is_new").min(),
        before=pl.col("at").filter(~pl.col("is_new")).max().fill_null(0),
    )
    is_behind = (pl.col("first") > pl.col("before")).fill_null(value=False)
    both = sides.group_by("place").agg(count=is_behind.sum()).filter(pl.col("count") == 2)
    yield from both["place"].to_list()


def _closings(messages: pa.Table, kind: NDArray[np.uint8], place: NDArray[np.int64]) -> dict[int, str]:
    """By connection, who said first that it would close it, and how; of HTTP/2 who did so for an error, if any did."""
    frame_kind = numbers(messages["frame_kind"])
    is_close = (kind == HeadKind.WEBSOCKET_FRAME) & (frame_kind == Opcode.CLOSE)
    is_goaway = (kind == HeadKind.HTTP2_FRAME) & (frame_kind == GOAWAY)
    rows = np.flatnonzero(is_close | is_goaway)
    if not len(rows):
        return {}
    found: dict[int, tuple[bool, int, str]] = {}
    columns = ("host", "frame", "from_client", "status", "result_code")
    said = messages.select(columns).take(pa.array(rows)).to_pylist()
    hosts: dict[int, str | None] = {}
    for at, row, goaway in zip(place[rows].tolist(), said, is_goaway[rows].tolist(), strict=True):
        if hosts.setdefault(at, row["host"]) != row["host"]:
            continue  # one host's frames are in the order of time
        words = _goaway_words(row["result_code"]) if goaway else f"close {row['status'] or ''}".strip()
        one = (words == NO_ERROR, row["frame"], f"{'client' if row['from_client'] else 'server'}: {words}")
        found[at] = min(found.get(at, one), one)
    return {at: text for at, (_, _, text) in found.items()}


def _goaway_words(result_code: int) -> str:
    _, name = _core.answer_meaning(HTTP2, 0, result_code)
    return name or "GOAWAY"


HTTP2 = [name for name, *_ in _core.protocols()].index("http/2")


def _texts(values: Mapping[int, str], count: int) -> pa.DictionaryArray:
    names = sorted(set(values.values()))
    codes = np.full(count, -1, dtype=np.int32)
    for at, text in values.items():
        codes[at] = names.index(text)
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), pa.array(names, pa.string()))
