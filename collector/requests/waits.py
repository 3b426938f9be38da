"""Infers two waits of a span that none of its own packets show: its server's queue, and parallel calls to other
servers.

**Queue.** A server shows that it has taken a request up by its first action: it calls another server, or asks for the
body (HTTP 100). The time from the request's first byte to that action is a wait for a free worker and some work. The
work alone is estimated from requests that did not wait: the `UNHURRIED` quantile of that time over the service's
requests in the trace. The excess is the queue. Limits: a queue that is never empty during the trace counts as work; no
queue is inferred for a server that calls nobody, or does so fewer than `FEWEST` times.

**Fan-out.** If one parent asks several servers the same at the same time (same service, one begun before another
ended), the first answer shows how long the work takes; the parent's further wait is for the other servers.

Source for the first idea: the minimum of a delay is its part without queueing, as in Paxson, "Measurements and Analysis
of End-to-End Internet Dynamics" (1997), §16.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from collector import _core
from collector.capture_files.records import Columns
from collector.trace.time_columns import Int64Array

if TYPE_CHECKING:
    from collector._core import Waits

UNQUEUED_QUANTILE, LEAST_REQUESTS = 0.05, 20


def waits(
    parent: Int64Array,
    service: NDArray[np.int32],
    *,
    began: Int64Array,
    ended: Int64Array,
    asked_for_body: Int64Array,
    arrived: Int64Array,
) -> "Waits":
    """`service_start`, when the server probably began to work on each request, and `first_answered`, when the first of
    its parent's parallel calls to the same service was answered; trace times in ns, `UNSEEN` if unknown.

    Arguments, one value for each exchange: the row of its parent, `NONE` for a root, a row beyond the last if the
    parent is not among them; a number for its service; when it began, when its answer had ended, when its server asked
    for the body, when the first byte of its request arrived. Cost: a pass, `collector/core/spans/src/waits.rs`.
    """
    columns: Columns = {
        "parent": parent,
        "began_ns": began,
        "ended_ns": ended,
        "asked_ns": asked_for_body,
        "arrived_ns": arrived,
        "service": service,
    }
    return _core.waits(columns, UNQUEUED_QUANTILE, LEAST_REQUESTS)
