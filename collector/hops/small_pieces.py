"""Recognises senders that hold back no small piece (TCP_NODELAY), so that none of their pauses is one for an ACK.

Nagle's algorithm holds a piece smaller than a segment back while an earlier small one is not acknowledged (RFC 1122
§4.2.3.4, as Linux does it). A pause that ends just after a delayed ACK looks like that. But a sender of many small
messages resumes at such a moment by chance, too. Its other packets show it: one that sends a small piece right behind
another one, although nothing of the other side has arrived in between, does not wait.

Input: pauses as from `collector.hops.sender_pauses.pause_table`, hops. For each direction with pauses for a delayed
ACK, what its sender sent and received, by its own clock, counts the small pieces sent behind an unacknowledged one. If
they are `LEAST_COUNT` or more, and more than the pauses, the sender's program paused itself, and these are left out.

Limits: a program that sets TCP_NODELAY in the middle of a connection lacks its pauses before that. Where the capture
missed ACKs, small pieces seem to follow each other: then more than the pauses must do so.
"""

import polars as pl
import pyarrow as pa

from collector.hops.sender_pauses import HELD_BACK, USUAL_MSS_BYTES

SMALL_BYTES = USUAL_MSS_BYTES // 2
"""Less is smaller than a segment also where the path takes only short ones."""
LEAST_COUNT = 3
"""Chosen: so many small pieces behind an unacknowledged one are no accident of the capture."""
FLOW = ["connection_id", "from_client"]
COLUMNS = [*FLOW, "kind", "attempt", "stream_start", "stream_end"]
STAMPS = ["send_frame", "send_host_ns", "receive_frame", "receive_host_ns"]


def without_own_pauses(pauses: pa.Table, hops: pa.Table) -> pa.Table:
    """The pauses, without those for a delayed ACK of senders that hold no small piece back."""
    if not pauses.num_rows:
        return pauses
    rows = pl.DataFrame(pauses).with_row_index("row").filter(HELD_BACK)
    if rows.is_empty():
        return pauses
    held = rows.group_by(FLOW).agg(pauses_count=pl.len())
    at_once = _sent_at_once(held.select(FLOW), hops)
    free = held.join(at_once, on=FLOW).filter(pl.col("count") >= LEAST_COUNT, pl.col("count") > pl.col("pauses_count"))
    own = rows.join(free, on=FLOW, how="semi")["row"].to_list()
    kept = pl.Series(range(pauses.num_rows)).is_in(own)
    return pauses.filter(pa.array((~kept).to_list()))


def _sent_at_once(flows: pl.DataFrame, hops: pa.Table) -> pl.DataFrame:
    """`connection_id, from_client, count`: how many small pieces each sender sent behind another one, of which nothing
    that had arrived there in between could be the ACK."""
    found = pl.DataFrame(hops.select([*COLUMNS, *STAMPS])).join(flows.select("connection_id").unique(), on=FLOW[:1])
    is_data = (pl.col("kind").cast(pl.String) == "data") & (pl.col("attempt") == 1)
    sent = found.filter(is_data, pl.col("send_host_ns").is_not_null()).group_by(
        *FLOW, at="send_host_ns", frame="send_frame"
    )
    pieces = sent.agg(pl.col("stream_start").min(), pl.col("stream_end").max()).with_columns(
        arrived=pl.lit(value=False)
    )
    heard = found.filter(pl.col("receive_host_ns").is_not_null()).select(
        "connection_id", from_client=~pl.col("from_client"), at="receive_host_ns", arrived=pl.lit(value=True)
    )
    events = pl.concat([pieces, heard], how="diagonal").join(flows, on=FLOW, how="semi")
    events = events.sort(*FLOW, "at", pl.col("arrived").not_(), "stream_start")
    small = ~pl.col("arrived") & (pl.col("stream_end") - pl.col("stream_start") < SMALL_BYTES)
    behind = small & small.shift(1).over(FLOW) & (pl.col("stream_start") == pl.col("stream_end").shift(1).over(FLOW))
    return events.group_by(FLOW).agg(count=behind.fill_null(value=False).sum())
