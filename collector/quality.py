"""How well packets were paired: counts for each connection and direction, to be summed by hosts or over all.

A trace without these counts asks to be believed. Every packet that was captured is in one of them.
"""

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from collector.schema import QUALITY, HopKind, HopState, conform

COUNTS = (
    *(f"{state}_count" for state in HopState),
    "split_count",
    "retransmitted_count",
    "early_count",
    "bytes",
    "matched_bytes",
)
"""Columns of `schema.QUALITY` that add up."""


def quality_of(hops: pa.Table) -> pa.Table:
    """The table `quality` of these hops (whole connections, in the order that matching gives them: a connection's
    direction is one run of rows).

    Source: `schema.QUALITY` says what each count is. Cost: one pass.
    """
    if not hops.num_rows:
        return conform("quality", QUALITY.empty_table())
    connection, from_client = hops["connection_id"].to_numpy(), hops["from_client"].to_numpy()
    new_run = (np.diff(connection) != 0) | (np.diff(from_client.astype(np.int8)) != 0)
    starts = np.concatenate([[0], np.flatnonzero(new_run) + 1])

    def total(values: NDArray[np.generic]) -> pa.Array:
        return pa.array(np.add.reduceat(values.astype(np.int64), starts))

    state, states = _codes(hops["state"])
    kind, kinds = _codes(hops["kind"])
    is_state = {name: state == states.get(name, -1) for name in HopState}
    matched = is_state[HopState.MATCHED]
    length = hops["stream_end"].to_numpy() - hops["stream_start"].to_numpy()
    in_window = ~is_state[HopState.OUTSIDE_WINDOW] & ~is_state[HopState.LOST]
    delay = hops["one_way_delay_ns"].fill_null(0).to_numpy()
    columns = {f"{name}_count": total(chosen) for name, chosen in is_state.items()} | {
        "split_count": total(matched & (kind == kinds.get(HopKind.DATA, -1)) & _shares_an_end(hops, connection)),
        "retransmitted_count": total(hops["attempt"].to_numpy() > 1),
        "early_count": total(delay < 0),
        "bytes": total(np.where(in_window, length, 0)),
        "matched_bytes": total(np.where(matched, length, 0)),
    }
    ends = hops.select(["connection_id", "send_host", "receive_host"]).take(pa.array(starts))
    return conform("quality", pa.table({name: ends[name] for name in ends.column_names} | columns))


def telling_hops(hops: pa.Table) -> pa.Table:
    """Hops of the connections in which anything but plain success happened: what `findings` needs of them."""
    frame = pl.DataFrame(hops.select(["connection_id", "state", "attempt", "kind"]))
    trouble = (pl.col("state") != HopState.MATCHED) | (pl.col("attempt") > 1) | (pl.col("kind") == HopKind.RST)
    answers = (pl.col("kind") == HopKind.SYN_ACK) | (pl.col("kind") == HopKind.DATA)
    unanswered = ~answers.any().over("connection_id")
    connections = frame.filter(trouble | unanswered)["connection_id"].unique()
    keep = frame.select(pl.col("connection_id").is_in(connections.implode())).to_series()
    return hops.filter(keep.to_arrow())


def _codes(column: pa.ChunkedArray) -> tuple[NDArray[np.generic], dict[str, int]]:
    """A text column as numbers, and which number each text has."""
    encoded = column.combine_chunks()
    return encoded.indices.to_numpy(), {text: code for code, text in enumerate(encoded.dictionary.to_pylist())}


def _shares_an_end(hops: pa.Table, connection: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Hops whose neighbour in their flow is of the same send or of the same receive."""
    shares = np.zeros(len(connection), dtype=bool)
    for end in ("send", "receive"):
        frames = hops[f"{end}_frame"].fill_null(0).to_numpy()
        same = (frames[1:] == frames[:-1]) & (frames[1:] != 0) & (connection[1:] == connection[:-1])
        shares[1:] |= same
        shares[:-1] |= same
    return shares
