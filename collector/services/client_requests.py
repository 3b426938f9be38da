"""Classifies root requests: the clients' own, background work, and those whose parent was not found.

- Client's: its client serves nobody, and its User-Agent names no daemon (`collector.services.services`). So does one
  that was not captured, unless it may be a server that was not captured either and that another captured host called.
- Background: its User-Agent names a daemon; or its kind has a rhythm of its own: most requests of the kind begin while
  their host serves no request, and has served none within `LINGER_NS`.
- Unlinked: neither. Its client serves others and begins such calls while it does. So a request probably made it, but it
  is unknown which.

A kind is all requests of one host to one service. If every captured root's client serves somebody, the roots of clients
that were not captured count; without any (all on one host), all roots do. Only timestamps of one host are compared (a
call's beginning, and when its host served), so clock errors have no effect.

Limits: a daemon without a User-Agent on a host that is never idle is `unlinked`. So is work deferred for longer than
`LINGER_NS` after an answer; if most of its kind is, it is `background`.
"""

import numpy as np
import polars as pl

from collector.trace.request_times import BEGIN, SERVER_BEGIN, SERVER_END
from collector.trace.time_columns import Int64Array

LINGER_NS = 100_000_000
"""Work deferred by a request begins within this time after its answer, even on a busy host."""
OWN_RHYTHM_SHARE, FEWEST_OF_A_KIND = 0.5, 3
"""A kind has a rhythm of its own if this share of its calls, and at least so many, begin while their host is idle."""
RHYTHM_COLUMNS = ("server_host", "service", *dict.fromkeys((*BEGIN.columns, *SERVER_END.columns)))
"""What `times_served` asks of rows, and `has_own_rhythm` beside `client_host`."""


def of_clients(roots: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """The `roots` that are clients' requests.

    Arguments: `roots` and all `rows`, with at least `client_host`, `server_host` and `background`.
    """
    asked = roots.filter(~pl.col("background").fill_null(value=False))
    served = rows["server_host"].drop_nulls().unique()
    unseen = pl.col("client_host").is_null()
    serves_nobody = ~pl.col("client_host").is_in(served.implode()) | (unseen & _cannot_be_relayed(rows))
    outer = asked.filter(serves_nobody.fill_null(value=False))
    if outer.is_empty():
        outer = asked.filter(unseen)
    return asked if outer.is_empty() else outer


def _cannot_be_relayed(rows: pl.DataFrame) -> pl.Expr:
    """Whether no host but a request's own server called a server that was not captured, and that may have sent it."""
    callers = rows.filter(pl.col("server_host").is_null())["client_host"].drop_nulls().cast(pl.String).unique()
    if callers.is_empty():
        return pl.lit(value=True)
    return pl.col("server_host").cast(pl.String) == callers[0] if len(callers) == 1 else pl.lit(value=False)


def times_served(rows: pl.DataFrame) -> pl.DataFrame:
    """When each of some exchanges was served: `server_host, opened, closed`."""
    return rows.select("server_host", opened=SERVER_BEGIN.expr(), closed=SERVER_END.expr())


def has_own_rhythm(calls: pl.DataFrame, served: pl.DataFrame) -> pl.Series:
    """Whether each call is of a kind with a rhythm of its own.

    Arguments: `calls` that are neither daemons' nor clients' (`client_host, service`, and `begin`, when they did);
    `served`, from `times_served` of at least all exchanges that these hosts served.
    """
    kind = ["client_host", "service"]
    timed = calls.select(*kind, idle=_begins_while_idle(calls, served))
    is_idle = pl.col("idle").mean().over(kind) >= OWN_RHYTHM_SHARE
    return timed.select(is_idle & (pl.len().over(kind) >= FEWEST_OF_A_KIND)).to_series()


def _begins_while_idle(calls: pl.DataFrame, times: pl.DataFrame) -> pl.Series:
    """Whether each call began while its host served no request, and had served none within `LINGER_NS`."""
    idle = np.zeros(len(calls), dtype=np.bool_)
    begin = calls["begin"]
    for host in calls["client_host"].drop_nulls().unique():
        served = times.filter(pl.col("server_host") == host).select(
            "opened", pl.col("closed").fill_null(np.iinfo(np.int64).max - LINGER_NS)
        )
        served = served.drop_nulls().sort("opened")
        mine = (calls["client_host"] == host).fill_null(value=False).to_numpy() & begin.is_not_null().to_numpy()
        if served.is_empty():  # none of its exchanges has both ends known
            idle[mine] = True
            continue
        reach: Int64Array = np.maximum.accumulate(served["closed"].to_numpy() + LINGER_NS)
        place = np.searchsorted(served["opened"].to_numpy(), begin.fill_null(0).to_numpy()[mine], side="right") - 1
        idle[mine] = (place < 0) | (reach[place] < begin.fill_null(0).to_numpy()[mine])
    return pl.Series(idle)
