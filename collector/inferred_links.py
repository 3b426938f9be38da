"""Parents of exchanges that show no transaction id, from what the trace itself teaches about its services.

The loops are the core's (`tracer._core.link_exchanges`, whose header explains the method; docs/linking.md). Only kinds
of exchanges that are common enough to learn from are judged; the rest is `collector.links`' to decide.
"""

import numpy as np
import polars as pl

from collector.schema import LinkReason
from tracer import _core

UNSEEN = np.iinfo(np.int64).min
NO_HOST = -1
TIMES = (
    *("connect_start", "request_first_sent", "request_first_received", "response_first_sent"),
    *("response_first_received", "response_last_sent", "response_last_received", "given_up"),
)


def infer_links(exchanges: pl.DataFrame) -> pl.DataFrame:
    """What was judged of each exchange; those that were not have no row.

    Arguments: columns of `collector.schema.EXCHANGES`, hosts and services as enums; none linked otherwise.
    Returns: `exchange_id, parent_id, confidence, link_reason`; `parent_id` is null where there is held to be none.
    """
    columns = exchanges.select(
        pl.col("client_host", "server_host", "service").to_physical().cast(pl.Int64).fill_null(NO_HOST),
        pl.col("connection_id"),
        pl.col("request_bytes", "response_bytes").fill_null(0),
        *(pl.col(f"{name}_trace_ns").fill_null(UNSEEN).alias(f"{name}_ns") for name in TIMES),
    )
    found = _core.link_exchanges({name: np.ascontiguousarray(columns[name].to_numpy()) for name in columns.columns})
    parent = pl.Series(found["parent"])
    ids = exchanges["exchange_id"]
    links = pl.DataFrame(
        {
            "exchange_id": ids,
            "parent_id": ids.gather(pl.select(pl.when(parent >= 0).then(parent)).to_series()),
            "link_reason": pl.Series([LinkReason.TIMING.value], dtype=pl.String).new_from_index(0, len(ids)),
            "confidence": found["confidence"],
        }
    )
    return links.filter(pl.Series(found["judged"]))
