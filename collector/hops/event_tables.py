"""Builds the tables `events` and `messages` from the core's columns of packets."""

import numpy as np
import pyarrow as pa

from collector.capture_files.records import Columns
from collector.decode.captures import Decoded
from collector.trace.arrow import ALL_VALID, dictionary_array, nullable
from collector.trace.schema import conform

DIRECTION_NAMES = pa.array(["unknown", "receive", "send"])
"""Dictionary of the column `direction`, in the order of `collector.capture_files.records.Direction`."""

PLAIN = (
    *("frame", "host_ns", "src_port", "dst_port", "seq", "ack", "flags", "payload_len", "window"),
    *("captured_len", "original_len"),
)
"""Columns that `events` takes unchanged."""
OF_A_HEAD = (
    *("head_kind", "head_flags", "method", "target", "status", "content_length", "head_len"),
    *("range_first", "range_last", "transaction_id", "user_agent"),
)
"""Columns that `messages` takes unchanged."""


def event_table(decoded: Decoded, placed: Columns) -> pa.Table:
    """Rows of `events`, and a column `duplicate`: another point of the same host represents the packet in its hop.

    Arguments: `placed`, what matching found for each packet: `connection_id`, and `duplicate_bits`, one bit for each.
    """
    events = decoded.events
    columns = {name: nullable(events[name]) for name in PLAIN}
    columns |= {
        "host": dictionary_array(events["host_place"], decoded.hosts),
        "point": dictionary_array(events["point_place"], decoded.points),
        "direction": dictionary_array(events["direction_place"], DIRECTION_NAMES),
        "ip_id": nullable(events["ip_id"], events["ip_id_validity"]),
        "connection_id": nullable(placed["connection_id"], placed.get("connection_id_validity", ALL_VALID)),
        "duplicate": pa.BooleanArray.from_buffers(
            pa.bool_(), len(events["frame"]), [None, pa.py_buffer(placed["duplicate_bits"])]
        ),
    }
    columns |= {
        f"{end}_addr": dictionary_array(events[f"{end}_addr"].view(np.int32), decoded.addresses)
        for end in ("src", "dst")
    }
    columns |= {name: nullable(events[name], events["stamps_validity"]) for name in ("tsval", "tsecr")}
    return conform("events", pa.table(columns))


def message_table(decoded: Decoded, placed: Columns) -> pa.Table:
    """Rows of `messages`: HTTP heads with their position in a connection's stream.

    Arguments: `placed`, what matching found for each head's packet: `connection_id`, `from_client`, `stream_offset`.
    """
    heads = decoded.heads
    rows = heads["event_row"].to_numpy()
    columns = {name: heads[name] for name in OF_A_HEAD}
    columns |= {
        "connection_id": nullable(placed["connection_id"]),
        "host": dictionary_array(decoded.events["host_place"][rows], decoded.hosts),
        "frame": nullable(decoded.events["frame"][rows]),
        "from_client": pa.array(placed["from_client"]),
        "stream_offset": nullable(placed["stream_offset"] + heads["payload_offset"].to_numpy().astype(np.int64)),
    }
    return conform("messages", pa.table(columns))
