"""Exchanges of a connection by turn-taking alone: the client's bytes, then the server's, then the client's again.

For TLS, unknown protocols, and captures too short for a message head. Judged by the server host's clock alone, because
only there is the order of a request and its answer free of clock error; where the server did not see a transfer, its
client-side stamp stands in, which keeps causal order.

A turn is a maximal run of client bytes followed by a maximal run of server bytes. Bytes that repeat what was seen
before (retransmissions) begin no turn. Turn 0 is what a server says before its client says anything.

Limits: a pipelining client looks like one turn; a server that starts to answer before it has the whole request splits
the request into several turns.
"""

import polars as pl

from collector.parts import Role
from collector.runs import begins, counted, largest, previous


def turn_parts(ranges: pl.DataFrame) -> pl.DataFrame:
    """Parts of the exchanges on connections without visible heads.

    Arguments: `ranges`, as in `collector.parts.byte_ranges`, of these connections.
    Returns: `flow, connection_id, from_client, start, ordinal, role`; `ordinal` is the turn, from 0.
    """
    begin = begins("flow")
    new = pl.col("end") > previous(largest(pl.col("end"), begin), begin).fill_null(-1)
    news = ranges.sort("flow", "server_ns", "start").filter(new).sort("connection_id", "server_ns", "start")
    begin = begins("connection_id")
    asks = pl.col("from_client") & ~previous(pl.col("from_client"), begin).fill_null(value=False)
    turns = news.with_columns(ordinal=counted(asks, begin))
    runs = turns.group_by("flow", "connection_id", "from_client", "ordinal").agg(
        pl.col("start").min(), pl.col("end").max()
    )
    firsts = ranges.group_by("flow").agg(first=pl.col("start").min())
    runs = runs.join(firsts, on="flow").sort("flow", "ordinal")
    # A run begins where the one before it ended, so that bytes which arrived out of order are not left out.
    return runs.with_columns(
        start=pl.coalesce(previous(pl.col("end"), begins("flow")), "first"),
        role=pl.when("from_client").then(pl.lit(Role.REQUEST)).otherwise(pl.lit(Role.RESPONSE)).cast(pl.Int8),
    ).drop("end", "first")
