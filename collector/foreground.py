"""Which root requests are the clients' own, and which go on by themselves: replicators, auditors, updaters.

A daemon's request says so in its User-Agent (`collector.services`). Where no User-Agent can be read, a host that
serves others has daemons of its own, so a root whose client serves nobody is a client's. If every root's client serves
somebody (all on one host), they are all taken for clients'.
"""

import polars as pl


def of_clients(roots: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Those of `roots` that clients asked.

    Arguments: `roots` and all `rows`, with at least `client_host`, `server_host` and `background`.
    """
    asked = roots.filter(~pl.col("background").fill_null(value=False))
    served = rows["server_host"].drop_nulls().unique()
    outer = asked.filter(~pl.col("client_host").is_in(served.implode()))
    return outer if len(outer) else asked
