"""What a span waited for that no packet of its own says: its server's queue, and the others asked at once.

**Queue.** A server shows that it has taken a request up by what it does first: it asks another server, or for the body
(HTTP 100). From the request's first byte to that act there is some work, and before it the wait for a free worker. The
work alone is what a request takes that did not wait: the `UNHURRIED` quantile of that time over the requests of the
service in the trace. What is beyond is queue. So a queue that never empties while the trace lasts is taken for work; a
server that asks nobody has no queue that could be seen, nor one that did so less than `FEWEST` times.

**Fan-out.** Of servers that one parent asked the same at the same time (same service, one begun before another ended),
the first answer tells how long the thing takes; what the parent waits longer, it waits for the others.

Source for the first idea: the minimum of a delay as its part without queueing, as in Paxson, "Measurements and Analysis
of End-to-End Internet Dynamics" (1997), §16.
"""

import numpy as np
from numpy.typing import NDArray

from collector.trace.time_columns import Int64Array
from tracer import _core
from tracer.records import Columns

UNHURRIED, FEWEST = 0.05, 20


def waits(
    parent: Int64Array,
    service: NDArray[np.int32],
    *,
    began: Int64Array,
    ended: Int64Array,
    invited: Int64Array,
    arrived: Int64Array,
) -> Columns:
    """`taken_up`, when each request was probably taken up by its server, and `first_answered`, when the first of the
    servers asked the same at once had answered their parent; trace times in ns, `UNSEEN` where nothing tells.

    Arguments, one value for each exchange: the row of its parent, `NONE` for a root, beyond the last for a parent that
    is none of them; a number for its service; when it began, when its answer had ended, when its server asked for the
    body, when the first byte of its request arrived. Cost: a pass, `tracer/core/spans/src/waits.rs`.
    """
    columns: Columns = {
        "parent": parent,
        "began_ns": began,
        "ended_ns": ended,
        "asked_ns": invited,
        "arrived_ns": arrived,
        "service": service,
    }
    return _core.waits(columns, UNHURRIED, FEWEST)
