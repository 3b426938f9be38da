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

from collector.runs import begins, following, last_at_most, stretches


class Role(IntEnum):
    """What a part is to its exchange."""

    REQUEST = 1
    CONTINUE = 2
    INTERIM = 3
    RESPONSE = 4


BEFORE_ALL = -(1 << 63)
FLOW = (pl.col("connection_id") * 2 + pl.col("from_client").cast(pl.Int64)).alias("flow")
"""One direction of a connection, as a number."""


def byte_ranges(hops: pl.DataFrame) -> pl.DataFrame:
    """Distinct byte ranges carried by `hops`, each with its first send and its first arrival.

    Arguments: `hops`, columns of `collector.schema.HOPS`, with `from_client` true to the protocol's roles.
    Returns: `connection_id, from_client, flow, start, end, sent_ns, received_ns, server_ns, uncertainty_ns`, sorted by
    flow and start; `server_ns` is the server's stamp, or the client's where the server has none.
    """
    carries = (pl.col("stream_end") > pl.col("stream_start")) & ~pl.col("kind").is_in(["keepalive", "window_probe"])
    columns = {"sent_ns": "send_trace_ns", "received_ns": "receive_trace_ns", "uncertainty_ns": "uncertainty_ns"}
    places = {"start": "stream_start", "end": "stream_end"}
    transfers = hops.filter(carries).select("connection_id", "from_client", FLOW, **places, **columns)
    ranges = _distinct(transfers.sort("flow", "start", "end"))
    return ranges.with_columns(server_ns=server_time("sent_ns", "received_ns"))


def _distinct(transfers: pl.DataFrame) -> pl.DataFrame:
    """One row for each byte range of `transfers`, in their order: by flow, start and end."""
    keys = ("connection_id", "from_client", "flow", "start", "end")
    first = begins("flow", "start", "end")
    again = transfers.select(again=~first | ~first.shift(-1, fill_value=True))["again"]
    if not again.any():
        return transfers
    merged = (
        transfers.filter(again)
        .group_by(keys)
        .agg(pl.col("sent_ns", "received_ns").min(), pl.col("uncertainty_ns").max())
    )
    return pl.concat([transfers.filter(~again), merged]).sort("flow", "start", "end")


def server_time(sent: str, received: str) -> pl.Expr:
    """The server's stamp of a transfer, or the client's where the server has none."""
    from_client = pl.coalesce(received, sent)
    return pl.when("from_client").then(from_client).otherwise(pl.coalesce(sent, received))


def locate(
    positions: pl.DataFrame, starts: pl.DataFrame, at: str, *, start: str = "start", by: str = "flow"
) -> pl.Series:
    """The row of `starts` that holds `at` of each of `positions`: the last that starts no later; null if none does.

    Arguments: `positions` with `by` and `at`, null before all; `starts` with `by` and `start`, sorted by both.
    """
    low, high = stretches(starts[by].to_numpy(), positions[by].to_numpy())
    row = last_at_most(starts[start].to_numpy(), low, high, positions[at].fill_null(BEFORE_ALL).to_numpy())
    return pl.Series("row", row).set(pl.Series(row < low), None)


def part_times(ranges: pl.DataFrame, parts: pl.DataFrame) -> pl.DataFrame:
    """When each part's first and last bytes left and arrived.

    Arguments: `ranges` from `byte_ranges`; `parts` with `part, flow, start`, sorted by flow and start.
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
    """`part, flow, start, part_start, part_end` of parts; the flow's last part ends with the last byte seen."""
    ends = ranges.group_by("flow").agg(flow_end=pl.col("end").max())
    ordered = parts.select("part", "flow", "start").join(ends, on="flow", how="left", maintain_order="left")
    next_start = following(pl.col("start"), begins("flow"))
    return ordered.select("part", "flow", "start", part_start="start", part_end=pl.coalesce(next_start, "flow_end"))


def _pieces(ranges: pl.DataFrame, bounds: pl.DataFrame) -> pl.DataFrame:
    """Ranges split at the bounds of parts: `part, part_start, part_end, start, end`, and the columns of times."""
    held = ranges.with_columns(place=locate(ranges, bounds, "start")).drop_nulls("place")
    held = _with_bounds(held, bounds)
    whole = held.filter(pl.col("end") <= pl.col("part_end"))
    return pl.concat([whole, _split(held.filter(pl.col("end") > pl.col("part_end")), bounds)])


def _split(spanning: pl.DataFrame, bounds: pl.DataFrame) -> pl.DataFrame:
    """One row for each part that a range touches, clipped to it."""
    last = locate(spanning.with_columns(last=pl.col("end") - 1), bounds, "last")
    places = pl.int_ranges("place", last + 1)
    each = spanning.with_columns(place=places).explode("place")
    return _with_bounds(each, bounds).with_columns(
        start=pl.max_horizontal("start", "part_start"), end=pl.min_horizontal("end", "part_end")
    )


def _with_bounds(ranges: pl.DataFrame, bounds: pl.DataFrame) -> pl.DataFrame:
    """`ranges` with `part, part_start, part_end` of the part at their `place`."""
    return ranges.with_columns(bounds[name].gather(ranges["place"]) for name in ("part", "part_start", "part_end"))
