"""Exchanges that are no requests: turns of connections on which several requests and answers are under way at once.

Where no head is visible, an exchange is a turn: what the client says until the server speaks, then what the server says
until the client speaks (`tracer/core/exchanges/src/turns.rs`). Over a connection that carries messages of many requests
in both directions (a websocket between the nodes of a store, Ceph's messenger) a turn begins and ends wherever
two messages happen to meet. It is nobody's request, so nobody made it, and nothing was made for it. HTTP/2 is not among
them: its streams are exchanges of their own (`tracer/core/exchanges/src/http2.rs`).

Such connections show it in their silences. Who asks and then waits says what it has to say, and is answered. Where
requests run beside each other, a client that is silent goes on though it heard nothing, since the next message is of
another request; and so does the server. A slow upload makes requests of that shape, a streamed answer makes answers of
it; a connection of which both are, again and again, carries several things at once.

Input: the exchanges' table. Output: which of them are such turns. Algorithm:
1. Exchanges without a head, by client host, server host and service; those of a group that use a connection again and
   again (`LEAST_TURNS_EACH` in the mean) and are many (`LEAST_TURNS`).
2. Of each group the share of requests in which their sender was silent by its own choice (`silences.rs`: `Source`),
   and the share of such answers.
3. Multiplexed if both are at least `LEAST_SHARE`.

Limits: with one request at a time nothing shows, and turns are nearly what was asked. Of few turns nothing is said. A
keep-alive connection behind TLS over which slow uploads and slowly streamed answers both go is taken for one of these;
then links are left out, none is wrong.
"""

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from collector.requests.exchanges import HTTP2

LEAST_TURNS = 20
"""Turns between two hosts of which it is said whether they are requests: as many as links are learned from."""
LEAST_TURNS_EACH = 4
"""Turns for each connection in the mean; with fewer, a connection is opened for each request."""
LEAST_SHARE = 0.1
"""Share of requests, and of answers, that go on after a silence: 0.13 to 0.39 over MinIO's websockets with 8 requests
at once, 0.54 to 0.74 between Ceph's servers, at most 0.06 and 0.09 between Ceph's gateway and servers with one."""
COLUMNS = ["connection_id", "client_host", "server_host", "service", "method", "protocol"]
ENDS = ["client_host", "server_host", "service"]


def multiplexed_turns(exchanges: pa.Table) -> NDArray[np.bool_]:
    """Which exchanges are turns of multiplexed connections, in their order.

    Arguments: `exchanges`, columns of `collector.trace.schema.EXCHANGES`.
    """
    none = np.zeros(exchanges.num_rows, dtype=np.bool_)
    if not exchanges["method"].null_count:
        return none
    silences = ["request_silent_idle_ns", "response_silent_idle_ns"]
    turns = pl.DataFrame(exchanges.select([*COLUMNS, *silences])).with_row_index("row")
    turns = turns.filter(pl.col("method").is_null(), pl.col("protocol").cast(pl.String).ne_missing(HTTP2))
    paused = [(pl.col(name).fill_null(0) > 0).mean().alias(name) for name in silences]
    groups = turns.group_by(ENDS).agg(pl.len(), pl.col("connection_id").n_unique().alias("connections"), *paused)
    several = groups.filter(
        pl.col("len") >= pl.max_horizontal(LEAST_TURNS, LEAST_TURNS_EACH * pl.col("connections")),
        *(pl.col(name) >= LEAST_SHARE for name in silences),
    )
    none[turns.join(several, on=ENDS, how="semi", nulls_equal=True)["row"].to_numpy()] = True
    return none
