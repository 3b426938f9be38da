"""Stretches of a byte stream: which transfers carry them, when their first and last bytes left and arrived.

A `part` is a stretch of one direction of a connection that belongs to one exchange: a request, a response, or an
interim (1xx) response. The parts of a flow are disjoint and ordered, so a part ends where the next one begins.
Receivers and senders cut a stream at other places than messages end, so a transfer can touch several parts; it is
split here.

Times, for a part of bytes [start, end):
- first/last sent: when byte `start` / `end - 1` was first sent, whatever became of that attempt;
- first received: when byte `start` first arrived;
- last received: when the last missing byte arrived (so after a loss, when the hole was filled);
null where unseen. All are trace times.
"""

from enum import IntEnum

import polars as pl


class Role(IntEnum):
    """What a part is to its exchange."""

    REQUEST = 1
    CONTINUE = 2
    INTERIM = 3
    RESPONSE = 4


FLOW = (pl.col("connection_id") * 2 + pl.col("from_client").cast(pl.Int64)).alias("flow")
"""One direction of a connection, as a number."""


def byte_ranges(hops: pl.DataFrame) -> pl.DataFrame:
    """Distinct byte ranges carried by `hops`, each with its first send and its first arrival.

    Arguments: `hops`, columns of `collector.schema.HOPS`, with `from_client` true to the protocol's roles.
    Returns: `connection_id, from_client, flow, start, end, sent_ns, received_ns, server_ns, uncertainty_ns`, sorted by
    flow and start; `server_ns` is the server's stamp, or the client's where the server has none.
    """
    carries = (pl.col("stream_end") > pl.col("stream_start")) & ~pl.col("kind").is_in(["keepalive", "window_probe"])
    ranges = (
        hops.filter(carries)
        .group_by("connection_id", "from_client", start="stream_start", end="stream_end")
        .agg(
            sent_ns=pl.col("send_trace_ns").min(),
            received_ns=pl.col("receive_trace_ns").min(),
            uncertainty_ns=pl.col("uncertainty_ns").max(),
        )
    )
    return ranges.with_columns(FLOW, server_ns=server_time("sent_ns", "received_ns")).sort("flow", "start")


def server_time(sent: str, received: str) -> pl.Expr:
    """The server's stamp of a transfer, or the client's where the server has none."""
    from_client = pl.coalesce(received, sent)
    return pl.when("from_client").then(from_client).otherwise(pl.coalesce(sent, received))


def locate(positions: pl.DataFrame, parts: pl.DataFrame, at: str) -> pl.DataFrame:
    """`positions` with the `part` that holds the byte at `at`; null before the flow's first part.

    Arguments: `positions` with `flow` and `at`; `parts` with `part, flow, start`. Row order is not kept.
    """
    keys = parts.select("flow", "part", pl.col("start").alias(at)).sort(at)
    return positions.sort(at).join_asof(keys, on=at, by="flow", strategy="backward", check_sortedness=False)


def part_times(ranges: pl.DataFrame, parts: pl.DataFrame) -> pl.DataFrame:
    """When each part's first and last bytes left and arrived.

    Arguments: `ranges` from `byte_ranges`; `parts` with `part, flow, start`.
    Returns: `part, end, first_sent_ns, first_received_ns, last_sent_ns, last_received_ns, uncertainty_ns`, one row for
    each part of which a byte was seen.
    """
    bounds = _bounds(ranges, parts)
    pieces = _pieces(ranges, bounds)
    first, last = pl.col("start") == pl.col("part_start"), pl.col("end") == pl.col("part_end")
    times = pieces.group_by("part").agg(
        end=pl.col("part_end").first(),
        first_sent_ns=pl.when(first).then("sent_ns").min(),
        first_received_ns=pl.when(first).then("received_ns").min(),
        last_sent_ns=pl.when(last).then("sent_ns").min(),
        last_received_ns=pl.col("received_ns").max(),
        uncertainty_ns=pl.col("uncertainty_ns").max(),
        end_arrived=pl.when(last).then(pl.col("received_ns").is_not_null()).any(),
    )
    return times.with_columns(last_received_ns=pl.when("end_arrived").then("last_received_ns")).drop("end_arrived")


def _bounds(ranges: pl.DataFrame, parts: pl.DataFrame) -> pl.DataFrame:
    """Parts in stream order with their ends; the flow's last part ends with the last byte seen."""
    ends = ranges.group_by("flow").agg(flow_end=pl.col("end").max())
    ordered = parts.select("part", "flow", "start").sort("flow", "start").join(ends, on="flow", how="left")
    ordered = ordered.with_columns(part_end=pl.coalesce(pl.col("start").shift(-1).over("flow"), "flow_end"))
    return ordered.drop("flow_end").with_row_index("place")


def _pieces(ranges: pl.DataFrame, bounds: pl.DataFrame) -> pl.DataFrame:
    """Ranges split at the bounds of parts: `part, part_start, part_end, start, end`, and the columns of times."""
    keys = bounds.rename({"start": "part_start"})
    held = locate(ranges, bounds, "start").drop_nulls("part").join(keys.drop("flow"), on="part")
    whole = held.filter(pl.col("end") <= pl.col("part_end"))
    return pl.concat([whole, _split(held.filter(pl.col("end") > pl.col("part_end")), bounds)], how="diagonal")


def _split(spanning: pl.DataFrame, bounds: pl.DataFrame) -> pl.DataFrame:
    """One row for each part that a range touches, clipped to it."""
    last = spanning.with_columns(last=pl.col("end") - 1)
    last = locate(last.drop("part"), bounds, "last").drop("last").rename({"part": "last_part"})
    last = last.join(bounds.select(last_part="part", last_place="place"), on="last_part")
    each = last.with_columns(place=pl.int_ranges("place", pl.col("last_place").cast(pl.Int64) + 1)).explode("place")
    each = each.drop("part_start", "part_end", "last_part", "last_place").with_columns(pl.col("place").cast(pl.UInt32))
    places = bounds.select("place", "part", part_start="start", part_end="part_end")
    return each.join(places, on="place").with_columns(
        start=pl.max_horizontal("start", "part_start"), end=pl.min_horizontal("end", "part_end")
    )
