"""Counts connections whose requests are unknown, as a counter of the trace.

Their messages are frames that name their stream, and not all of them are known
(`collector/core/exchanges/src/by_stream_id.rs`). Of HTTP/2 then none is counted and none has a duration, since a
missing frame may be of any request; of protocols whose frames stand alone, as Ceph's, only those whose answers may be
missing. Packets, messages and bytes are shown (table `streams`, reason `unread`).
"""

import pyarrow as pa
import pyarrow.compute as pc

from collector.capture_files.records import Severity
from collector.trace.model import CounterInfo
from collector.trace.schema import StreamReason

UNREAD = "frames_unread"
REMEDY = (
    "requests on these connections are not counted: frames (of HTTP/2, of Ceph) begin in bytes that were not captured; "
    "capture whole packets (`tracer capture --payload 65535`, `tcpdump -s 0`), without drops"
)


def unread_connections(streams: pa.Table) -> tuple[CounterInfo, ...]:
    """One counter of these connections, if there are any. Arguments: the table `streams`."""
    is_unread = pc.equal(streams["reason"].cast(pa.string()), str(StreamReason.UNREAD))
    count = pc.count_distinct(streams["connection_id"].filter(is_unread)).as_py()
    return (CounterInfo(None, UNREAD, Severity.NOTICE, count, REMEDY),) if count else ()
