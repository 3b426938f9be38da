"""Builds the table `events` from the core's columns of packets."""

import numpy as np
import pyarrow as pa

from collector.capture_files.records import EVENT_COLUMNS, Columns
from collector.decode.decoded import Decoded
from collector.trace.arrow import ALL_VALID, dictionary_array, nullable
from collector.trace.schema import EVENTS, conform

DIRECTION_NAMES = pa.array(["unknown", "receive", "send"])
"""Dictionary of the column `direction`, in the order of `collector.capture_files.records.Direction`."""

PLAIN = [
    column.name
    for column in EVENTS
    if column.name in EVENT_COLUMNS and not column.nullable and not pa.types.is_dictionary(column.type)
]
"""Columns that `events` takes unchanged."""


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
