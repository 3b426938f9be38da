"""Counts connections whose requests are unknown, as a counter of the trace.

They are HTTP/2, but not all of their frame headers are known (`collector/core/exchanges/src/by_stream_id.rs`): several
requests may be active at any time, so none is counted and none has a duration. Their packets, messages and bytes
are shown (table `streams`, reason `unread`).
"""

import pyarrow as pa
import pyarrow.compute as pc

from collector.capture_files.records import Severity
from collector.trace.model import CounterInfo
from collector.trace.schema import StreamReason

UNREAD = "http2_unread"
REMEDY = (
    "requests on these connections are not counted: frames of HTTP/2 begin in bytes that were not captured; capture "
    "whole packets (`tracer capture --payload 65535`, `tcpdump -s 0`), without drops"
)


def unread_connections(streams: pa.Table) -> tuple[CounterInfo, ...]:
    """One counter of these connections, if there are any. Arguments: the table `streams`."""
    is_unread = pc.equal(streams["reason"].cast(pa.string()), str(StreamReason.UNREAD))
    count = pc.count_distinct(streams["connection_id"].filter(is_unread)).as_py()
    return (CounterInfo(None, UNREAD, Severity.NOTICE, count, REMEDY),) if count else ()
