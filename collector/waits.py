"""What a span waited for that no packet of its own says: its server's queue, and the others of its quorum.

**Queue.** A server shows that it has taken a request up by what it does first: it asks another server, or for the body
(HTTP 100). From the request's first byte to that act there is some work, and before it the wait for a free worker. The
work alone is what a request takes that did not wait: the `UNHURRIED` quantile of that time over the requests of the
service in the trace. What is beyond is queue. So a queue that never empties while the trace lasts is taken for work; a
server that asks nobody has no queue that could be seen, nor one that did so less than `FEWEST` times.

**Quorum.** Of servers that one parent asked the same at the same time (same service, one begun before another ended),
the first answer tells how long the thing takes; what the parent waits longer, it waits for the others.

Source for the first idea: the minimum of a delay as its part without queueing, as in Paxson, "Measurements and Analysis
of End-to-End Internet Dynamics" (1997), §16.
"""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from collector.critical_path import NONE, UNSEEN
from collector.runs import reached_before

Longs = NDArray[np.int64]

UNHURRIED, FEWEST = 0.05, 20
SERVICES = 1 << 20
"""More services than a trace has, so that a parent and a service are one number."""
NEVER = np.iinfo(np.int64).max


def taken_up(exchanges: pl.DataFrame, parent: Longs) -> Longs:
    """When each request was probably taken up by its server, trace time in ns; `UNSEEN` where nothing tells.

    Arguments: `exchanges`; the row of each one's parent, `NONE` for a root, beyond the last for a parent that is none
    of them.
    """
    count = len(exchanges)
    acted = np.full(count, NEVER)
    inside = np.flatnonzero((parent != NONE) & (parent < count))
    began = _stamps(exchanges, "connect_start", "request_first_sent", "request_first_received")
    inside = inside[began[inside] != UNSEEN]
    np.minimum.at(acted, parent[inside], began[inside])
    asked = _stamps(exchanges, "continue_sent")
    acted = np.where(asked == UNSEEN, acted, np.minimum(acted, asked))
    arrived = _stamps(exchanges, "request_first_received")
    told = (acted != NEVER) & (arrived != UNSEEN) & (acted >= arrived)
    gap = pl.Series(np.where(told, acted - arrived, 0))
    known = pl.DataFrame({"service": exchanges["service"], "gap": gap}).with_columns(
        gap=pl.when(pl.Series(told)).then("gap")
    )
    enough = pl.col("gap").count().over("service") >= FEWEST
    work = known.select(pl.when(enough).then(pl.col("gap").quantile(UNHURRIED, "lower").over("service"))).to_series()
    began_work = np.maximum(arrived, acted - work.fill_null(0).to_numpy().astype(np.int64))
    return np.where(told & work.is_not_null().to_numpy(), began_work, UNSEEN)


def first_answers(exchanges: pl.DataFrame, parent: Longs) -> Longs:
    """When the first of the servers asked the same at once had answered their parent; `UNSEEN` for one asked alone.

    Arguments: as `taken_up`.
    """
    began = _stamps(exchanges, "connect_start", "request_first_sent", "request_first_received")
    ended = _stamps(exchanges, "response_last_received", "response_last_sent")
    asked = np.flatnonzero((parent != NONE) & (parent < len(exchanges)) & (began != UNSEEN) & (ended != UNSEEN))
    service = exchanges["service"].to_physical().fill_null(SERVICES - 1).to_numpy().astype(np.int64)[asked]
    group = parent[asked] * SERVICES + service
    order = np.lexsort((began[asked], group))
    asked, group = asked[order], group[order]
    apart = began[asked] >= reached_before(ended[asked], group, UNSEEN)
    starts = np.flatnonzero(apart)
    answers = np.full(len(exchanges), UNSEEN)
    if len(starts):
        counts = np.diff(starts, append=len(asked))
        first = np.where(counts > 1, np.minimum.reduceat(ended[asked], starts), UNSEEN)
        answers[asked] = np.repeat(first, counts)
    return answers


def _stamps(exchanges: pl.DataFrame, *names: str) -> Longs:
    seen = pl.coalesce(*(f"{name}_trace_ns" for name in names))
    return exchanges.select(seen.fill_null(UNSEEN)).to_series().to_numpy().astype(np.int64)
