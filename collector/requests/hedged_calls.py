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
from collector.trace.request_times import RESPONSE_BEGIN
from collector.trace.time_columns import UNSEEN, Int64Array

NO_PARENT = -1
MAX_WASTED_SHARE = 0.5
"""If the wait after the other call's answer is a smaller share of a call's whole wait, it was abandoned because of that
answer."""
FIRST_ERROR_STATUS = 400
"""Lower statuses are those of successful answers (RFC 9110 §15)."""


def find_hedged_calls(
    exchanges: pa.Table, parent: Int64Array, start: Int64Array, target: NDArray[np.uint64]
) -> tuple[Int64Array, Int64Array]:
    """The rows of calls abandoned in this way, ascending; when the other call began, or the call if later (trace ns).

    Arguments: `exchanges` with `ending, closed_trace_ns, status, method` and the response's first timestamps; for each
    its parent's row, or -1; when it began; a number for its target, 0 if unknown.
    Cost: a pass over the endings; more only for siblings of calls that were left.
    """
    place, names = indices(exchanges["ending"])
    left = np.flatnonzero(np.isin(place, [names.index(name) for name in BY_CLIENT if name in names]))
    left = left[(parent[left] != NO_PARENT) & (target[left] != 0)]
    if not len(left):
        return left, left
    siblings = np.flatnonzero(np.isin(parent, parent[left]) & (place < 0) & (target != 0))
    closed = coalesce(exchanges, ["closed_trace_ns"], UNSEEN)
    answered = RESPONSE_BEGIN.times(exchanges)
    status, method = numbers(exchanges["status"]), indices(exchanges["method"])[0]

    def rows(chosen: Int64Array, **more: Int64Array) -> pl.DataFrame:
        same = {"parent": parent[chosen], "target": target[chosen], "method": method[chosen]}
        return pl.DataFrame(
            same | {"row": chosen, "start": start[chosen]} | {name: of[chosen] for name, of in more.items()}
        )

    successful = siblings[(status[siblings] < FIRST_ERROR_STATUS) & (answered[siblings] != UNSEEN)]
    on = ["parent", "target", "method"]
    pairs = rows(left, closed=closed).join(rows(successful, answered=answered), on=on)
    wasted_ns = pl.col("closed") - pl.col("answered")
    waited_ns = pl.col("closed") - pl.col("start")
    is_hedged = (
        (pl.col("start_right") < pl.col("closed")) & (wasted_ns >= 0) & (wasted_ns < MAX_WASTED_SHARE * waited_ns)
    )
    until = pl.max_horizontal(pl.col("start_right").min(), pl.col("start").first())
    found = pairs.filter(is_hedged).group_by("row").agg(until=until).sort("row")
    return found["row"].to_numpy(), found["until"].to_numpy()
