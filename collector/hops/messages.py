"""Builds the table `messages` from excerpts of packets, once matching has placed the packets in their streams; and
recognises what each connection speaks, by how its two directions begin.

The protocol that kept an excerpt at decoding reads the messages from it (`collector/core/messages/src/lib.rs`). Each
message is a row for each capture point that shows it.
"""

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from collector import _core
from collector.capture_files.records import HEAD_COLUMNS, HEAD_STRINGS, by_name
from collector.decode.decoded import Decoded
from collector.trace.arrow import bits, dictionary_array, nullable
from collector.trace.schema import MESSAGES, conform
from collector.trace.wire_text import head_batch

if TYPE_CHECKING:
    from collector._core import EventPlaces

OF_A_HEAD = [name for name in MESSAGES.names if name in (*HEAD_COLUMNS, *HEAD_STRINGS)]
"""Columns that `messages` takes unchanged."""
PROTOCOLS = pa.array([name for name, *_ in _core.protocols()], pa.string())
"""Dictionary of `protocol`, in the order of the registry."""
EVIDENCE = pa.array(["", "client", "server", "both"], pa.string())
"""Dictionary of `protocol_evidence`, in the order of the core's codes; the first stands for null."""


def recognised_protocols(
    decoded: Decoded, placed: "EventPlaces", first_id: int, count: int, is_of_end: NDArray[np.bool_] | None = None
) -> dict[str, pa.Array]:
    """Columns `protocol`, `protocol_evidence` and `tls_opened` of `count` connections, whose ids begin with `first_id`.

    Arguments: as of `message_table`.
    """
    excerpts = decoded.excerpts
    rows = np.arange(len(excerpts["frame"])) if is_of_end is None else np.flatnonzero(is_of_end)
    protocol, evidence, is_opened = _core.recognise_connections(
        excerpts, rows.astype(np.uint32), by_name(placed), first_id, count
    )
    return {
        "protocol": dictionary_array(protocol, PROTOCOLS),
        "protocol_evidence": dictionary_array(evidence, EVIDENCE, bits(evidence > 0)),
        "tls_opened": pa.array(is_opened),
    }


def message_table(decoded: Decoded, placed: "EventPlaces", is_of_end: NDArray[np.bool_] | None = None) -> pa.Table:
    """Rows of `messages`: heads with their position in a connection's stream.

    Arguments: `placed`, what matching found for each excerpt's packet: `connection_id`, `from_client`, `stream_offset`;
    `is_of_end`, which excerpts these are, if not all.
    """
    heads = head_batch(by_name(_core.read_messages(decoded.excerpts)))
    excerpt = heads["excerpt_row"].to_numpy()
    place: NDArray[np.integer] | slice
    if is_of_end is None:
        place = row = _index(excerpt, len(decoded.excerpts["event_row"]))
    else:
        heads = heads.filter(pa.array(is_of_end[excerpt]))
        row = excerpt[is_of_end[excerpt]]
        place = (np.cumsum(is_of_end) - 1)[row]
    event = decoded.excerpts["event_row"][row]
    columns = {name: heads[name] for name in OF_A_HEAD}
    columns |= {
        "connection_id": nullable(placed["connection_id"][place]),
        "host": dictionary_array(decoded.events["host_place"][event], decoded.hosts),
        "frame": nullable(decoded.events["frame"][event]),
        "from_client": pa.array(placed["from_client"][place]),
        "stream_offset": nullable(placed["stream_offset"][place] + heads["payload_offset"].to_numpy()),
    }
    return conform("messages", pa.table(columns))


def _index(rows: NDArray[np.integer], count: int) -> NDArray[np.integer] | slice:
    """Rows of columns of `count` rows, as an index; a slice, which copies nothing, if these are all rows in order."""
    is_whole = len(rows) == count and np.array_equal(rows, np.arange(count, dtype=rows.dtype))
    return slice(None) if is_whole else rows
