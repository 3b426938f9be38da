"""Which root requests are the clients' own, which go on by themselves, and which nobody's parent was found for.

- A client's: its client serves nobody, and its User-Agent names no daemon (`collector.services.services`).
- Background: its User-Agent names a daemon; or its kind has a rhythm of its own: most of the kind begin while their
  host serves no request, nor has within `LINGER_NS`.
- Unlinked, neither of these: its client serves others and begins such calls while it does, so it is likely that a
  request made it, but which was not found.

A kind is what one host asks one service. If every root's client serves somebody (all on one host), they are all taken
for clients'. Stamps of one host are compared (a call's begin, and when its host served), so clocks play no part.

Limits: a daemon without a User-Agent on a host that is never idle is `unlinked`; so is work put off for longer than
`LINGER_NS` after an answer, or, if most of its kind is, `background`.
"""

import numpy as np
import polars as pl

from collector.trace.time_columns import Int64Array

LINGER_NS = 100_000_000
"""Work that a request left behind begins within this time of its answer; a busy host takes some."""
OWN_RHYTHM_SHARE, FEWEST_OF_A_KIND = 0.5, 3
"""Of a kind's calls that begin while their host serves nobody, and of calls, before a rhythm of its own is inferred."""
_BEGIN = ("request_first_sent_trace_ns", "request_first_received_trace_ns")
_OPENED = ("request_first_received_trace_ns", "request_first_sent_trace_ns")
_CLOSED = ("response_last_sent_trace_ns", "response_last_received_trace_ns", "given_up_trace_ns")

RHYTHM_COLUMNS = ("server_host", "service", *dict.fromkeys((*_BEGIN, *_OPENED, *_CLOSED)))
"""What `in_background` asks of rows beside what `of_clients` does."""


def of_clients(roots: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Those of `roots` that clients asked.

    Arguments: `roots` and all `rows`, with at least `client_host`, `server_host` and `background`.
    """
    asked = roots.filter(~pl.col("background").fill_null(value=False))
    served = rows["server_host"].drop_nulls().unique()
    outer = asked.filter(~pl.col("client_host").is_in(served.implode()))
    return outer if len(outer) else asked


def in_background(roots: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Those of `roots` that go on by themselves; what is neither these nor `of_clients` is unlinked.

    Arguments: as `of_clients`, with `service` and the times of `collector.trace.schema.EXCHANGES`.
    """
    is_daemon = pl.col("background").fill_null(value=False)
    others = roots.filter(~is_daemon).join(of_clients(roots, rows), on="exchange_id", how="anti")
    kind = ["client_host", "service"]
    timed = others.with_columns(idle=_begins_while_idle(others, rows))
    own = (pl.col("idle").mean().over(kind) >= OWN_RHYTHM_SHARE) & (pl.len().over(kind) >= FEWEST_OF_A_KIND)
    return pl.concat([roots.filter(is_daemon), timed.filter(own).select(roots.columns)])


def _begins_while_idle(calls: pl.DataFrame, rows: pl.DataFrame) -> pl.Series:
    """Whether each call began while its host served no request, nor had within `LINGER_NS`."""
    idle = np.zeros(len(calls), dtype=np.bool_)
    begin = calls.select(pl.coalesce(_BEGIN)).to_series()
    for host in calls["client_host"].drop_nulls().unique():
        served = rows.filter(pl.col("server_host") == host).select(
            opened=pl.coalesce(_OPENED), closed=pl.coalesce(_CLOSED).fill_null(np.iinfo(np.int64).max - LINGER_NS)
        )
        served = served.drop_nulls().sort("opened")
        mine = (calls["client_host"] == host).fill_null(value=False).to_numpy() & begin.is_not_null().to_numpy()
        if served.is_empty():  # of none of its exchanges both ends are known
            idle[mine] = True
            continue
        reach: Int64Array = np.maximum.accumulate(served["closed"].to_numpy() + LINGER_NS)
        place = np.searchsorted(served["opened"].to_numpy(), begin.fill_null(0).to_numpy()[mine], side="right") - 1
        idle[mine] = (place < 0) | (reach[place] < begin.fill_null(0).to_numpy()[mine])
    return pl.Series(idle)
