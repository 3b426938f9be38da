"""Counts connections of which the requests are unknown, or known by turns alone, each reason with its remedy.

- `connections_encrypted`: TLS that no key opened. Requests are turns of what is inside, if these are clean.
- `connections_begun_before`: nothing shows what they speak, and their beginning was not captured. Requests are turns.
- `connections_unknown`: nothing shows what they speak, though their beginning was captured. Requests are turns.
- `frames_unread`: frames name their stream, and not all frames are known (table `streams`, reason `unread`;
  `collector/core/exchanges/src/by_stream_id.rs`). Of HTTP/2 then no request is counted, since a missing frame may be of
  any; of protocols whose frames stand alone, as Ceph's, or follow each other, as Redis's, only those requests
  whose answers may be missing are not: the first of a connection that was begun before the capture.

Connections without requests, as those of a port scan, are not counted. Packets, messages and bytes of all are shown.
"""

from collections import Counter
from collections.abc import Mapping

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from collector.capture_files.records import Severity
from collector.requests.protocols import UNKNOWN
from collector.trace.model import CounterInfo
from collector.trace.schema import StreamReason

UNREAD = "frames_unread"
UNKNOWN_PROTOCOL = "connections_unknown"
REMEDIES = {
    "connections_encrypted": (
        "their requests are turns of encrypted records, without names; with `--keys FILE`, the key log of either end "
        "(SSLKEYLOGFILE), and captures of whole packets they are read"
    ),
    "connections_begun_before": (
        "what they speak is not known, since they began before the capture; begin the capture first, or restart one end"
    ),
    UNKNOWN_PROTOCOL: "they speak no protocol that is read here; so their requests are turns",
    UNREAD: (
        "requests on these connections are not counted, or not all: some of their messages were sent before the "
        "capture, or it missed them; begin the capture first, or restart one end, and capture without drops"
    ),
}
IF_CUT = {
    UNKNOWN_PROTOCOL: (
        "they speak no protocol that is read here, or their packets were cut too short to show it; capture whole "
        "packets (`tracer capture --payload 65535`, `tcpdump -s 0`) to rule that out"
    ),
    UNREAD: (
        "requests on these connections are not counted, or not all: some of their messages begin in bytes that were "
        "not captured; capture whole packets (`tracer capture --payload 65535`, `tcpdump -s 0`), without drops"
    ),
}
"""Remedies where packets may have been cut."""
COLUMNS = ["connection_id", "protocol", "client_isn", "tls_opened"]
TLS = "tls"


def unread_counts(connections: pa.Table, with_requests: pa.ChunkedArray) -> Counter[str]:
    """How many of a partition's connections there are for each reason, but for `frames_unread`.

    Arguments: `connections`, columns `COLUMNS`; `with_requests`, the ids of those with exchanges.
    """
    rows = pl.DataFrame(connections.select(COLUMNS)).with_columns(pl.col("protocol").cast(pl.String))
    rows = rows.filter(pl.col("connection_id").is_in(pl.Series(with_requests).unique().implode()))
    is_unknown, begun_before = pl.col("protocol") == UNKNOWN, pl.col("client_isn").is_null()
    found = rows.select(
        connections_encrypted=((pl.col("protocol") == TLS) & ~pl.col("tls_opened").fill_null(value=False)).sum(),
        connections_begun_before=(is_unknown & begun_before).sum(),
        connections_unknown=(is_unknown & ~begun_before).sum(),
    )
    return Counter(found.row(0, named=True))


def unread_counters(counts: Mapping[str, int], streams: pa.Table, *, are_cut: bool) -> tuple[CounterInfo, ...]:
    """One counter for each reason that there is.

    Arguments: `counts`, of `unread_counts`, summed over all partitions; the table `streams`; `are_cut`, whether packets
    may have been kept in part.
    """
    is_unread = pc.equal(streams["reason"].cast(pa.string()), str(StreamReason.UNREAD))
    frames_count = pc.count_distinct(streams["connection_id"].filter(is_unread)).as_py()
    remedies = REMEDIES | (IF_CUT if are_cut else {})
    return tuple(
        CounterInfo(None, name, Severity.NOTICE, count, remedy)
        for name, remedy in remedies.items()
        if (count := frames_count if name == UNREAD else counts.get(name, 0))
    )
