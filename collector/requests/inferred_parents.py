"""Infers the parents of exchanges that show no transaction id, from the trace itself.

The core does it (`collector._core.link_exchanges`; its crate `links` explains the method with an example; measurements
are in docs/linking.md). Only kinds of exchanges that are common enough to learn from are judged;
`collector.requests.parents` links the others.
"""

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from collector import _core
from collector.trace.time_columns import Int64Array, first_times_of_frame

NO_HOST = -1
TIMES = (
    *("connect_start", "request_first_sent", "request_first_received", "response_first_sent"),
    *("response_first_received", "response_last_sent", "response_last_received", "given_up"),
)


class Inferred(Struct, frozen=True):
    """What was judged of each exchange, in their order."""

    parent: Int64Array  # its place among them; negative where there is held to be none
    confidence: NDArray[np.float64]
    alternative: Int64Array  # the place of the next likeliest parent; negative where there is none
    alternative_confidence: NDArray[np.float64]
    judged: NDArray[np.bool_]


def infer_links(exchanges: pl.DataFrame, in_scope: NDArray[np.bool_], words: NDArray[np.uint32]) -> Inferred:
    """The parents of those exchanges that are `in_scope`; the others are linked otherwise, but may be parents.

    Arguments: see `core_columns`.
    """
    found = _core.link_exchanges(core_columns(exchanges, in_scope, words))
    return Inferred(
        found["parent"],
        found["confidence"],
        found["alternative"],
        found["alternative_confidence"],
        found["judged"],
    )


def core_columns(
    exchanges: pl.DataFrame, in_scope: NDArray[np.bool_], words: NDArray[np.uint32]
) -> dict[str, NDArray[np.generic]]:
    """The columns that the core's `link_exchanges` reads.

    Arguments: columns of `collector.trace.schema.EXCHANGES`, hosts, services and methods as enums; for each of them
    whether its parent is to be inferred, and the words of its target, as the core's `linking_words` returns them.
    """
    codes = exchanges.with_columns(client_host=pl.when(pl.Series(in_scope)).then("client_host")).select(
        pl.col("client_host", "server_host", "service", "method").to_physical().cast(pl.Int64).fill_null(NO_HOST),
        pl.col("connection_id"),
        pl.col("request_bytes", "response_bytes").fill_null(0),
    )
    columns: dict[str, NDArray[np.generic]] = {
        name: np.ascontiguousarray(codes[name].to_numpy()) for name in codes.columns
    }
    columns["words"] = np.ascontiguousarray(words)
    return columns | {f"{name}_ns": first_times_of_frame(exchanges, name) for name in TIMES}
