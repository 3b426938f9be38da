"""Gives the statements of one transaction one parent.

From BEGIN to COMMIT or ROLLBACK a connection of SQL has one holder: a pool lends it for no shorter, PgBouncer in
transaction mode neither. So its statements were made for one request, but each kind of them is linked by itself: of a
page's BEGIN, UPDATE, INSERT and COMMIT the first and the last had a parent, at times two, and the others none.

1. A transaction is what follows a BEGIN on its connection, up to the next COMMIT, ROLLBACK, END or ABORT.
2. Each parent of one of its statements has the sum of their confidences. Of those that were open from its first
   statement to its last one, all statements get the one with the highest sum; its confidence is that sum, divided by
   how many had a parent. Next to it, likewise, is the alternative.

Invariants: a link by id stays, and with it its transaction; a statement without a transaction stays.
Limits: a writer that collects the rows of several requests in one transaction, if one of these requests is open all the
time. A ROLLBACK to a savepoint ends what is seen as the transaction.
"""

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from collector.requests.critical_path import NONE
from collector.requests.protocols import WITH_SHAPES
from collector.trace.arrow import coalesce, indices
from collector.trace.time_columns import Int64Array

BEGINS = frozenset({"BEGIN", "START"})
ENDS = frozenset({"COMMIT", "ROLLBACK", "END", "ABORT"})
NO_STATEMENTS = pl.DataFrame(schema={"row": pl.Int64, "transaction": pl.Int64, "sent": pl.Int64})


def transactions(exchanges: pa.Table, sent: Int64Array) -> pl.DataFrame:
    """`row, transaction, sent`: the statements of each transaction of two statements or more.

    Arguments: `exchanges`, at least `connection_id`, `method` and `protocol`; when each was sent.
    """
    method = _is_one_of(exchanges["method"], BEGINS), _is_one_of(exchanges["method"], ENDS)
    if not method[0].any():
        return NO_STATEMENTS
    rows = np.flatnonzero(_is_one_of(exchanges["protocol"], frozenset(WITH_SHAPES)))
    of = coalesce(exchanges, ["connection_id"], NONE)[rows]
    statements = pl.DataFrame(
        {"row": rows, "of": of, "sent": sent[rows], "begins": method[0][rows], "ends": method[1][rows]}
    ).sort("of", "sent", "row")
    numbered = statements.with_columns(transaction=pl.col("begins").cum_sum().cast(pl.Int64)).with_columns(
        is_over=pl.col("ends").cum_sum().over("of", "transaction") - pl.col("ends").cast(pl.UInt32) > 0,
        is_begun=pl.col("begins").first().over("of", "transaction"),
    )
    within = numbered.filter(pl.col("is_begun") & ~pl.col("is_over"))
    return within.filter(pl.len().over("transaction") > 1).select("row", "transaction", "sent")


def one_parent_each(
    statements: pl.DataFrame,
    parent: Int64Array,
    confidence: NDArray[np.float64],
    by_id: NDArray[np.bool_],
    open_from: Int64Array,
    open_until: Int64Array,
) -> pl.DataFrame:
    """`row, parent, confidence, alternative, alternative_confidence` of the statements whose links follow from those of
    their transaction; an alternative is null where there is none.

    Arguments: `statements`, from `transactions`; of each exchange its parent, how likely that is, whether an id shows
    it, and from when until when it was open at its server.
    """
    rows = statements["row"].to_numpy()
    known = statements.with_columns(
        parent=pl.Series(parent[rows]), confidence=pl.Series(confidence[rows]), by_id=pl.Series(by_id[rows])
    ).with_columns(
        pl.col("sent").min().over("transaction").alias("first"), last=pl.col("sent").max().over("transaction")
    )
    known = known.filter(~pl.col("by_id").any().over("transaction"))
    linked = known.filter(pl.col("parent") != NONE)
    scores = linked.group_by("transaction", "parent", "first", "last").agg(pl.col("confidence").sum())
    counts = linked.group_by("transaction").agg(pl.len().alias("count"))
    at = scores["parent"].to_numpy()
    is_open = (open_from[at] <= scores["first"].to_numpy()) & (open_until[at] >= scores["last"].to_numpy())
    best = (
        scores.filter(pl.Series(is_open))
        .join(counts, on="transaction")
        .with_columns(confidence=pl.col("confidence") / pl.col("count"))
        .sort("transaction", "confidence", "parent", descending=[False, True, False])
        .group_by("transaction", maintain_order=True)
        .agg(
            pl.col("parent", "confidence").first(),
            alternative=pl.col("parent").get(1, null_on_oob=True),
            alternative_confidence=pl.col("confidence").get(1, null_on_oob=True),
        )
    )
    names = ("row", "parent", "confidence", "alternative", "alternative_confidence")
    return known.select("row", "transaction").join(best, on="transaction").select(names)


def _is_one_of(column: pa.ChunkedArray, names: frozenset[str]) -> NDArray[np.bool_]:
    place, known = indices(column)
    return np.isin(place, [number for number, name in enumerate(known) if name in names])
