"""Reads the tables that a view keeps in memory: those that are small compared with the hops."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from numpy.typing import NDArray

from collector.trace.reading import Trace

TROUBLE = ("warning", "error")
"""Severities of findings that count as problems."""


class Tables(Struct, frozen=True):
    """The tables read when a trace is opened."""

    clocks: pa.Table
    trouble: pa.Table  # findings that are problems and have a time, sorted by it
    trouble_from_ns: NDArray[np.int64]
    streams: pa.Table

    @classmethod
    def read(cls, trace: Trace) -> "Tables":
        """Read the tables of a trace."""
        findings = trace.read("findings")
        severity = pc.is_in(findings["severity"].cast(pa.string()), pa.array(TROUBLE))
        trouble = findings.filter(pc.and_(severity, pc.is_valid(findings["from_trace_ns"]))).sort_by("from_trace_ns")
        return cls(
            clocks=trace.read("clocks"),
            trouble=trouble,
            trouble_from_ns=trouble["from_trace_ns"].to_numpy(),
            streams=trace.read("streams"),
        )
