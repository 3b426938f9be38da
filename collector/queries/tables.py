"""The tables of a trace, as far as a view of it keeps them."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from collector import store
from collector.pairing import Pairing, read_pairing

HOP_COLUMNS = (
    *("kind", "send_host", "send_trace_ns", "receive_host", "receive_trace_ns"),
    *("stream_start", "stream_end", "attempt", "state", "exchange_id"),
)
TROUBLE = ("warning", "error")
"""Severities of findings that count as problems."""


@dataclass(frozen=True, slots=True)
class Tables:
    """What is read when a trace is opened."""

    hops: pa.Table
    clocks: pa.Table
    spans: pa.Table
    exchanges: pa.Table
    trouble: pa.Table  # findings that are problems and have a time, sorted by it
    trouble_from_ns: NDArray[np.int64]
    connections_count: int
    pairing: Pairing

    @classmethod
    def read(cls, url: str) -> "Tables":
        """Those of the trace at `url`."""
        findings = store.read_table(url, "findings")
        severity = pc.is_in(findings["severity"].cast(pa.string()), pa.array(TROUBLE))
        trouble = findings.filter(pc.and_(severity, pc.is_valid(findings["from_trace_ns"]))).sort_by("from_trace_ns")
        return cls(
            hops=store.read_table(url, "hops", HOP_COLUMNS),
            clocks=store.read_table(url, "clocks"),
            spans=store.read_table(url, "spans"),
            exchanges=store.read_table(url, "exchanges"),
            trouble=trouble,
            trouble_from_ns=trouble["from_trace_ns"].to_numpy(),
            connections_count=store.read_table(url, "connections", ["connection_id"]).num_rows,
            pairing=read_pairing(url),
        )
