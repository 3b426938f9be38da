"""Until when an answer would have been seen: a wait is judged only while at least one of the two captures ran.

An answer is seen where it is sent or where it arrives. So a request that seems unanswered is known to have waited up to
the first moment at which neither host captured:

    client  |--request..............|
    server      |........|                 unanswered from the request to the end of the client's capture,
    others  |..................................|   however long theirs went on

A capture's end is not stated in most files: its last packet may be followed by silence. It counts as running up to the
end of the trace, unless other hosts exchanged packets with it later (`collector.hops.coverage`), or its clock could not
be compared with theirs. Where a host kept only some connections (`collector.hops.sampling`), it ran for those alone.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
import pyarrow as pa
from msgspec import Struct, field

from collector.decode.activity import Span
from collector.hops.capture_windows import trace_spans
from collector.hops.coverage import EDGE_NS, HostCoverage, subtract_spans, union
from collector.hops.sampling import ALL_KEPT, Sampling
from collector.trace.time_columns import Int64Array

DEPTHS = ["client_depth", "server_depth"]
MOST_DEPTH = 6
"""Of a connection that every host keeps."""


class CapturedUntil(Struct, frozen=True):
    """When each host captured. `spans`: by host, ascending and disjoint, in trace time (ns); `end_trace_ns`, when the
    last capture ended: the answer where none of the two hosts has spans; `sampling`, which connections each host kept
    when, and, if it kept only some, `depths` of all (`sampling.connection_depths`)."""

    end_trace_ns: int
    spans: Mapping[str, Sequence[Span]] = field(default_factory=dict)
    sampling: Sampling = ALL_KEPT
    depths: pl.DataFrame | None = None

    def of(self, rows: pl.DataFrame, since: str) -> pl.Series:
        """For each row, until when the captures of its `client_host` or `server_host` ran without a hole.

        Arguments: `since`, a column of trace times (ns) at which one of the two captures saw a packet.
        Returns: `until`, trace times (ns), not before `since`; where that is null, the end of the trace.
        Cost: a search for each row.
        """
        began = rows[since].fill_null(self.end_trace_ns).to_numpy()
        until = np.full(len(rows), self.end_trace_ns, dtype=np.int64)
        hosts = rows.select(pl.col("client_host", "server_host").cast(pl.String), row=pl.int_range(pl.len()))
        hosts = hosts.with_columns(self._depths(rows))
        for (client, server, *depths), group in hosts.group_by("client_host", "server_host", *DEPTHS):
            ends = [(str(client), int(str(depths[0]))), (str(server), int(str(depths[1])))]
            if any(self.spans.get(host) for host, _ in ends):
                mine = group["row"].to_numpy()
                until[mine] = _ends(union(span for end in ends for span in self._spans_of(*end)), began[mine])
        return pl.Series("until", until)

    def _depths(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The columns `DEPTHS` of rows, as if every connection were kept where that is not known."""
        if not self.sampling or self.depths is None:
            return pl.DataFrame(dict.fromkeys(DEPTHS, pl.repeat(MOST_DEPTH, len(rows), dtype=pl.Int64, eager=True)))
        of = rows.select("connection_id").join(
            self.depths.select("connection_id", *DEPTHS), on="connection_id", how="left", maintain_order="left"
        )
        return of.select(pl.col(DEPTHS).fill_null(MOST_DEPTH))

    def _spans_of(self, host: str, depth: int) -> tuple[Span, ...]:
        """When a host captured connections of a depth."""
        return subtract_spans(self.spans.get(host, ()), self.sampling.left_out(host, depth))


def _ends(spans: Sequence[Span], at_ns: Int64Array) -> Int64Array:
    """The end of the span that contains each time, or that begins just after it; the time itself outside all spans."""
    if not spans:
        return at_ns
    begin, end = (np.array(column, dtype=np.int64) for column in zip(*spans, strict=True))
    place = np.searchsorted(begin, at_ns + EDGE_NS, side="right") - 1
    return np.where(place < 0, at_ns, np.maximum(end[place], at_ns))


def captured_until(
    covered: Mapping[str, HostCoverage],
    clocks: pa.Table,
    end_trace_ns: int,
    sampling: Sampling = ALL_KEPT,
    depths: pl.DataFrame | None = None,
) -> CapturedUntil:
    """From the `coverages` of all hosts, and the trace's `clocks`; `sampling` and `depths` as in the result."""
    alone = {row["host"] for row in clocks.to_pylist() if row["method"] == "none"}
    spans = {}
    for host, coverage in covered.items():
        own = trace_spans(host, coverage.whole, clocks)
        if own and not coverage.has_ended and host not in alone:
            own = (*own[:-1], (own[-1][0], max(own[-1][1], end_trace_ns)))
        spans[host] = own
    return CapturedUntil(end_trace_ns, spans, sampling, depths)
