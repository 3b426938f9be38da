"""Detects chunked answers that were cut short: their server closed the connection before the last chunk.

The head of a chunked answer states no length; the answer ends with a chunk of size 0, perhaps trailer fields, and an
empty line. So its last bytes are CR LF CR LF. For the last answer of each connection that one side ended, the packet
with the answer's last bytes is read again from a capture that has it whole. If none has, nothing is concluded.

Invariant: a complete answer is never reported as cut. The converse does not hold: an answer looks complete if the last
chunk received happens to end in an empty line, or if the last packet is shorter than CR LF CR LF.
Source: RFC 9112 §7.1.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from collector.capture_files.records import HeadFlag, HeadKind
from collector.requests.endings import FIN_FLAG
from collector.trace.arrow import numbers

END = b"\r\n\r\n"
FIRST_FINAL = 200
"""Lower statuses are those of interim answers, which have no body."""
MOST_LOOKED_AT = 50_000
"""At most so many packets of a host are examined."""
LAST_PACKETS = pl.Schema({"connection_id": pl.Int64, "host": pl.String, "frame": pl.UInt32})
FLOW = ["connection_id", "from_client"]
Payloads = Callable[[str, Sequence[int]], Iterable[tuple[int, bytes]]]
"""From a host and frame numbers (ascending) to the frames and their TCP payloads; omits packets not captured whole."""


def last_packets(events: pa.Table, hops: pa.Table, messages: pa.Table) -> pl.DataFrame:
    """The last data packets of connections whose last answer is chunked (columns `LAST_PACKETS`), each at one host that
    captured all of it.

    Arguments: tables of whole connections, not aligned yet. Cost: negligible without chunked answers.
    """
    chunked = _flows_ending_chunked(messages)
    if chunked.is_empty():
        return pl.DataFrame(schema=LAST_PACKETS)
    rows = np.flatnonzero(np.isin(numbers(hops["connection_id"]), chunked["connection_id"].to_numpy()))
    names = [*FLOW, "kind", "stream_start", "stream_end", "send_host", "send_frame", "receive_host", "receive_frame"]
    mine = _frame(hops.select(names).take(pa.array(rows))).join(chunked, on=FLOW)
    fins = mine.filter(pl.col("kind").is_in(["fin", "rst"])).select("connection_id")
    data = mine.filter((pl.col("kind") == "data") & (pl.col("stream_end") > pl.col("stream_start")))
    last = data.filter(pl.col("stream_end") == pl.col("stream_end").max().over(FLOW))
    ends = [
        last.select("connection_id", host=f"{end}_host", frame=f"{end}_frame").drop_nulls()
        for end in ("send", "receive")
    ]
    seen = pl.concat(ends).unique(maintain_order=True)
    packets = _packets(events, seen)
    riding = packets.filter(pl.col("flags") & FIN_FLAG > 0).select("connection_id")
    whole = packets.filter(pl.col("captured_len") >= pl.col("original_len"))
    ended = whole.join(pl.concat([fins, riding]).unique(), on="connection_id", how="semi")
    return (
        ended.unique("connection_id", keep="first", maintain_order=True).select(list(LAST_PACKETS)).cast(LAST_PACKETS)
    )


def cut_short(packets: Sequence[pl.DataFrame], payloads: Payloads) -> pl.Series:
    """Connections whose last answer is chunked and lacks its end.

    Arguments: `packets`, the `last_packets` of all partitions; `payloads`, which reads captured packets again.
    """
    every = pl.concat([pl.DataFrame(schema=LAST_PACKETS), *(part for part in packets if len(part))])
    found = []
    for (host,), rows in every.sort("frame").group_by("host", maintain_order=True):
        looked_at = rows.head(MOST_LOOKED_AT)
        last = dict(payloads(str(host), looked_at["frame"].to_list()))
        found += [
            connection
            for connection, frame in looked_at.select("connection_id", "frame").iter_rows()
            if len(payload := last.get(frame, b"")) >= len(END) and not payload.endswith(END)
        ]
    return pl.Series("connection_id", found, pl.Int64)


def _flows_ending_chunked(messages: pa.Table) -> pl.DataFrame:
    """Flows (columns `FLOW`) whose last head is that of a chunked final answer."""
    flags, kinds = numbers(messages["head_flags"]), numbers(messages["head_kind"])
    is_chunked = (kinds == HeadKind.RESPONSE) & (flags & HeadFlag.CHUNKED > 0)
    if not is_chunked.any():
        return pl.DataFrame(schema={"connection_id": pl.Int64, "from_client": pl.Boolean})
    of = np.isin(numbers(messages["connection_id"]), numbers(messages["connection_id"])[is_chunked])
    names = [*FLOW, "stream_offset", "head_kind", "head_flags", "status"]
    heads = pl.DataFrame(messages.select(names).take(pa.array(np.flatnonzero(of))))
    last = heads.filter(pl.col("stream_offset") == pl.col("stream_offset").max().over(FLOW))
    chunked = (pl.col("head_kind") == HeadKind.RESPONSE) & (pl.col("status") >= FIRST_FINAL)
    chunked &= pl.col("head_flags").cast(pl.Int64) & int(HeadFlag.CHUNKED) > 0
    return last.filter(chunked).select(FLOW).unique(maintain_order=True)


def _packets(events: pa.Table, seen: pl.DataFrame) -> pl.DataFrame:
    """The rows of `events` that are in `seen` (columns `LAST_PACKETS`)."""
    rows = np.flatnonzero(np.isin(numbers(events["connection_id"]), seen["connection_id"].to_numpy()))
    names = [*LAST_PACKETS, "flags", "captured_len", "original_len"]
    return seen.join(_frame(events.select(names).take(pa.array(rows))), on=list(LAST_PACKETS), maintain_order="left")


def _frame(table: pa.Table) -> pl.DataFrame:
    return pl.DataFrame(table).with_columns(pl.col(pl.Categorical).cast(pl.String))
