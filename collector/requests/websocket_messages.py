"""Counts the messages of WebSockets by their frames, for the table `streams`.

A message is a text or binary frame with the continuation frames behind it, however many packets carry it or messages a
packet (RFC 6455 §5.4). Pings, pongs and closes are counted apart. Where frames are missing between others, so are the
messages that they would have begun; the counter `frames_missed` says so.
"""

import numpy as np
import polars as pl
import pyarrow as pa

from collector.capture_files.records import HeadKind
from collector.hops.connection_changes import Opcode
from collector.trace.arrow import numbers

BEGINS = (Opcode.TEXT, Opcode.BINARY)
DATA = (Opcode.CONTINUATION, *BEGINS)


def with_frames(streams: pl.DataFrame, messages: pa.Table) -> pl.DataFrame:
    """`streams` with `control_count`, and of connections whose WebSocket frames were read the numbers of messages and
    bytes of their payloads instead of those of what was sent at once.

    Arguments: rows with the columns of the table `streams`, one for each such connection; the table `messages`.
    """
    rows = np.flatnonzero(numbers(messages["head_kind"]) == HeadKind.WEBSOCKET_FRAME)
    if not len(rows):
        return streams.with_columns(control_count=pl.lit(None, pl.Int64))
    columns = ["connection_id", "from_client", "stream_offset", "frame_kind", "content_length"]
    frames = pl.DataFrame(messages.select(columns).take(pa.array(rows)))
    frames = frames.unique(["connection_id", "from_client", "stream_offset"])  # seen at both ends, or sent again
    kind = pl.col("frame_kind")
    begun, data, to_server = kind.is_in([*BEGINS]), kind.is_in([*DATA]), pl.col("from_client")
    counts = frames.group_by("connection_id").agg(
        **{
            f"own_to_{side}_count": (begun & own).sum().cast(pl.Int64)
            for side, own in (("client", ~to_server), ("server", to_server))
        },
        **{
            f"own_to_{side}_bytes": pl.col("content_length").filter(data & own).sum().cast(pl.Int64)
            for side, own in (("client", ~to_server), ("server", to_server))
        },
        control_count=(~data).sum().cast(pl.Int64),
    )
    joined = streams.join(counts, on="connection_id", how="left", maintain_order="left")
    names = [f"to_{side}_{what}" for side in ("client", "server") for what in ("count", "bytes")]
    return joined.with_columns(**{name: pl.coalesce(f"own_{name}", name) for name in names}).drop(
        *(f"own_{name}" for name in names)
    )
