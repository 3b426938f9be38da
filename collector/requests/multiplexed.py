"""Detects exchanges that are no requests by their group: turns of connections that carry several requests at once.

A connection that shows this by itself is a stream (`collector/core/exchanges/src/clean_turns.rs`). What is left are
pools of connections, each with too few turns to judge; they are judged together, and left out of links.

Without visible heads, an exchange is a turn: the bytes of the client until the server sends, then the bytes of the
server until the client sends (`collector/core/exchanges/src/turns.rs`). On a connection that carries messages of many
requests in both directions (a websocket between the nodes of a store, Ceph's messenger in secure mode), a turn begins
and ends wherever two messages happen to meet. Such a turn is no request, so it has no parent and no children. A
protocol whose messages name their stream, as HTTP/2, does not belong here: its streams are exchanges of their own
(`collector/core/exchanges/src/by_stream_id.rs`).

The silences of such connections reveal them. A client with one request sends it without a break and waits for the
answer. If several requests overlap, a client continues after a silence although it received nothing, since the next
message belongs to another request; and so does the server. A slow upload has requests of that shape, a streamed answer
has answers of it; a connection on which both occur again and again carries several requests at once.

Input: the exchanges' table. Output: which of them are such turns. Algorithm:
1. Group the exchanges without a head by client host, server host and service. Keep groups that reuse connections
   (`LEAST_TURNS_EACH` turns each on average) and have enough turns (`LEAST_TURNS`).
2. For each group, compute the share of requests during which the sender was silent by its own choice (`silences.rs`:
   `Source`), and the share of such answers.
3. A group is multiplexed if both shares are at least `LEAST_SHARE`.

Limits: with one request at a time nothing is detected, and turns are nearly the requests. Few turns prove nothing. A
keep-alive connection behind TLS with both slow uploads and slowly streamed answers is mistaken for a multiplexed one;
then links are missing, but none is wrong.
"""

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from collector.requests.protocols import MULTIPLEXED

LEAST_TURNS = 20
"""Fewest turns between two hosts that are judged: as many as are needed to learn links."""
LEAST_TURNS_EACH = 4
"""Fewest turns of a connection on average; with fewer, a connection is opened for each request."""
LEAST_SHARE = 0.1
"""Share of requests, and of answers, that continue after a silence: 0.13 to 0.39 over MinIO's websockets with 8
requests at once, 0.54 to 0.74 between Ceph's servers, at most 0.06 and 0.09 between Ceph's gateway and servers with
one."""
COLUMNS = ["connection_id", "client_host", "server_host", "service", "method", "protocol"]
ENDS = ["client_host", "server_host", "service"]


def multiplexed_turns(exchanges: pa.Table) -> NDArray[np.bool_]:
    """Whether each exchange is a turn of a multiplexed connection.

    Arguments: `exchanges`, columns of `collector.trace.schema.EXCHANGES`.
    """
    none = np.zeros(exchanges.num_rows, dtype=np.bool_)
    if not exchanges["method"].null_count:
        return none
    silences = ["request_silent_idle_ns", "response_silent_idle_ns"]
    turns = pl.DataFrame(exchanges.select([*COLUMNS, *silences])).with_row_index("row")
    own_streams = pl.col("protocol").cast(pl.String).is_in(MULTIPLEXED)
    turns = turns.filter(pl.col("method").is_null(), ~own_streams.fill_null(False))
    paused = [(pl.col(name).fill_null(0) > 0).mean().alias(name) for name in silences]
    groups = turns.group_by(ENDS).agg(pl.len(), pl.col("connection_id").n_unique().alias("connections"), *paused)
    several = groups.filter(
        pl.col("len") >= pl.max_horizontal(LEAST_TURNS, LEAST_TURNS_EACH * pl.col("connections")),
        *(pl.col(name) >= LEAST_SHARE for name in silences),
    )
    none[turns.join(several, on=ENDS, how="semi", nulls_equal=True)["row"].to_numpy()] = True
    return none
