"""Requests whose tables are on disk in groups of few rows."""

from pathlib import Path

import pyarrow as pa

from collector.reporting.request_rows import RequestRows
from collector.trace.model import TraceInfo
from collector.trace.reading import Trace
from collector.trace.writing import write_trace


def rows_in_groups(folder: Path, spans: pa.Table, exchanges: pa.Table, rows_count: int) -> RequestRows:
    """The rows of a trace, written into `folder`, with groups of so many rows."""
    with write_trace(str(folder / "trace")) as writer:
        for name, table in (("exchanges", exchanges), ("spans", spans)):
            for begin in range(0, len(table), rows_count):
                writer.append(name, table.slice(begin, rows_count))
        writer.write_info(TraceInfo(created_ns=0, tool_version="", hosts=()))
    return RequestRows.of_trace(Trace(str(folder / "trace")))
