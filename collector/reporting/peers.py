"""The names of ends of connections without a capture, for rows of requests and streams.

Tables have the names of captured hosts; others have a name only if a hosts file or a capture gives their address one.
"""

import polars as pl

from collector.trace.peer_names import PeerNames
from collector.trace.reading import Trace

PEERS = ("client_peer", "server_peer")
"""Columns: what the address of an end without a capture is called."""
NO_PEERS = pl.DataFrame(schema={"connection_id": pl.Int64, **dict.fromkeys(PEERS, pl.String)})
"""As from `peers_of_connections` of a trace without names."""


def peers_of_connections(trace: Trace) -> pl.DataFrame:
    """`connection_id` and `PEERS` of the connections that have any. Cost: without names, none; else four columns of all
    connections. Raises: as `Trace.info`."""
    names = PeerNames(trace.info())
    if not names:
        return NO_PEERS
    ends = ("client", "server")
    columns = ["connection_id", *(f"{end}_{what}" for end in ends for what in ("host", "addr"))]
    rows = pl.DataFrame(trace.read("connections", columns)).with_columns(pl.col(pl.Categorical).cast(pl.String))
    return rows.select(
        pl.col("connection_id").cast(pl.Int64),
        *(
            pl.when(pl.col(f"{end}_host").is_null())
            .then(pl.col(f"{end}_addr").replace_strict(names.by_address(), default=None, return_dtype=pl.String))
            .alias(name)
            for end, name in zip(ends, PEERS, strict=True)
        ),
    ).filter(pl.any_horizontal(pl.col(PEERS).is_not_null()))


def with_peers(rows: pl.DataFrame, peers: pl.DataFrame) -> pl.DataFrame:
    """`rows` with `PEERS`, by `connection_id`. Arguments: `peers`, as from `peers_of_connections`."""
    if peers.is_empty():
        return rows.with_columns(pl.lit(None, pl.String).alias(name) for name in PEERS)
    known = peers.with_columns(pl.col("connection_id").cast(rows.schema["connection_id"]))
    return rows.join(known, on="connection_id", how="left", maintain_order="left")
