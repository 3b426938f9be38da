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

import polars as pl

from collector.critical_path import Longs
from collector.stamps import stamps, text_codes
from tracer import _core
from tracer.records import Columns

UNHURRIED, FEWEST = 0.05, 20

BEGAN = ("connect_start", "request_first_sent", "request_first_received")
"""When an exchange began: the first of these that was seen."""


def taken_up(exchanges: pl.DataFrame, parent: Longs) -> Longs:
    """When each request was probably taken up by its server, trace time in ns; `UNSEEN` where nothing tells.

    Arguments: `exchanges`, their services as categories; the row of each one's parent, `NONE` for a root, beyond the
    last for a parent that is none of them. Cost: a pass, `tracer/core/spans/src/waits.rs`.
    """
    columns: Columns = {
        "parent": parent,
        "began_ns": stamps(exchanges, *BEGAN),
        "asked_ns": stamps(exchanges, "continue_sent"),
        "arrived_ns": stamps(exchanges, "request_first_received"),
        "service": text_codes(exchanges["service"]),
    }
    return _core.taken_up(columns, UNHURRIED, FEWEST)


def first_answers(exchanges: pl.DataFrame, parent: Longs) -> Longs:
    """When the first of the servers asked the same at once had answered their parent; `UNSEEN` for one asked alone.

    Arguments and cost: as `taken_up`.
    """
    columns: Columns = {
        "parent": parent,
        "began_ns": stamps(exchanges, *BEGAN),
        "ended_ns": stamps(exchanges, "response_last_received", "response_last_sent"),
        "service": text_codes(exchanges["service"]),
    }
    return _core.first_answers(columns)
