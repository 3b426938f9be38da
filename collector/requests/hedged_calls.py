"""Finds calls that a server abandoned because another call got the same answer: they delay nothing once that one
begins.

    parent   ──┬─ first ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄✕ left
               │         └─ second ────────── answer ──┘ used
    waited for  │ first   │ second            │

A hedged request goes to a second server if the first is slow; the first answer is used, and the other call is
abandoned. Its parent waits for the first call until the second begins, and then for the second. A call is abandoned in
this way if

- its client left it (`endings.BY_CLIENT`),
- another call of the same parent asked the same (method and target, if both can be read), and began and was
  successfully answered before that,
- and most of the call's wait lay before that answer: a client that keeps waiting wants its own answer.

All timestamps are of one host, the parent's server. Not handled: calls whose answer arrives and is not used, which look
like any other; replicas that are asked for the same object by different targets; protocols that cannot be read.

Source: Dean and Barroso, "The Tail at Scale", CACM 56/2 (2013).
"""

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from collector.requests.endings import BY_CLIENT
from collector.trace.arrow import coalesce, indices, numbers
from collector.trace.time_columns import UNSEEN, Int64Array, first_times

NO_PARENT = -1
NEEDLESS_SHARE = 0.5
"""If the wait after the other call's answer is a smaller share of a call's whole wait, it was abandoned because of that
answer."""
WENT_WELL = 400
"""Lower statuses are those of successful answers (RFC 9110 §15)."""


def left_for_another(
    exchanges: pa.Table, parent: Int64Array, start: Int64Array, asked: NDArray[np.uint64]
) -> tuple[Int64Array, Int64Array]:
    """The rows of such calls, ascending, and when the other call began, or the call itself if later (trace times, ns).

    Arguments: `exchanges` with `ending, closed_trace_ns, status, method` and the response's first timestamps; for each
    its parent's row, or -1; when it began; a number for its target, 0 if unknown.
    Cost: a pass over the endings; more only for siblings of calls that were left.
    """
    place, names = indices(exchanges["ending"])
    left = np.flatnonzero(np.isin(place, [names.index(name) for name in BY_CLIENT if name in names]))
    left = left[(parent[left] != NO_PARENT) & (asked[left] != 0)]
    if not len(left):
        return left, left
    siblings = np.flatnonzero(np.isin(parent, parent[left]) & (place < 0) & (asked != 0))
    closed = coalesce(exchanges, ["closed_trace_ns"], UNSEEN)
    answered = first_times(exchanges, "response_first_received", "response_first_sent")
    status, method = numbers(exchanges["status"]), indices(exchanges["method"])[0]

    def rows(chosen: Int64Array, **more: Int64Array) -> pl.DataFrame:
        same = {"parent": parent[chosen], "asked": asked[chosen], "method": method[chosen]}
        return pl.DataFrame(
            same | {"row": chosen, "start": start[chosen]} | {name: of[chosen] for name, of in more.items()}
        )

    went_well = siblings[(status[siblings] < WENT_WELL) & (answered[siblings] != UNSEEN)]
    pairs = rows(left, closed=closed).join(rows(went_well, answered=answered), on=["parent", "asked", "method"])
    in_vain = pl.col("closed") - pl.col("answered")
    waited = pl.col("closed") - pl.col("start")
    taken = (pl.col("start_right") < pl.col("closed")) & (in_vain >= 0) & (in_vain < NEEDLESS_SHARE * waited)
    until = pl.max_horizontal(pl.col("start_right").min(), pl.col("start").first())
    found = pairs.filter(taken).group_by("row").agg(until=until).sort("row")
    return found["row"].to_numpy(), found["until"].to_numpy()
