"""Converts silences of messages to the form that the ledger needs: by the row of their span.

A silence is a stretch of a message in which none of its bytes was in transit
(`collector/core/exchanges/src/silences.rs` explains how silences are found). Long silences are rows of the table
`silences`. The table `exchanges` has sums of all silences, so the short ones are the difference: their message is
known, but not their place in time.
"""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from collector import _core
from collector.capture_files.records import Columns
from collector.trace.arrow import codes, numbers
from collector.trace.schema import ID_STRIDE_BITS, SilenceCause
from collector.trace.time_columns import Int64Array

CAUSES = [str(cause) for cause in SilenceCause]
"""In the order of the core's codes."""
SUMS = [(f"{of}_silent_{cause}_ns", of == "response", cause) for of in ("request", "response") for cause in CAUSES]
"""Columns of `exchanges` with sums of silences: name, whether of the response, cause."""
SUM_COLUMNS = [name for name, _, _ in SUMS]


def silences_by_row(silences: pa.Table, exchanges: pa.Table) -> Columns:
    """The long silences, and sums of the short ones, ordered by row and time.

    Arguments: the table `silences`; `exchanges` with `exchange_id` and `SUM_COLUMNS`, in the order of the spans.
    Silences of other exchanges are ignored.
    Returns: `row, in_response, cause, from_ns, to_ns` for long silences, and `short_row, short_in_response,
    short_cause, short_ns` for short ones; times in ns.
    """
    ids = numbers(exchanges["exchange_id"])
    long = _long_silences(silences, ids)
    short = [_short_silences(exchanges, long, *column) for column in SUMS]
    return long | {
        "short_row": _concat([rows for rows, _, _, _ in short], np.int64),
        "short_in_response": _concat([np.full(len(rows), response) for rows, response, _, _ in short], np.bool_),
        "short_cause": _concat([np.full(len(rows), cause) for rows, _, cause, _ in short], np.uint8),
        "short_ns": _concat([sums for _, _, _, sums in short], np.int64),
    }


def no_silences() -> Columns:
    """The result of `silences_by_row` without any silence."""
    kinds = {"row": np.int64, "in_response": np.bool_, "cause": np.uint8, "from_ns": np.int64, "to_ns": np.int64}
    short = {"short_row": np.int64, "short_in_response": np.bool_, "short_cause": np.uint8, "short_ns": np.int64}
    return {name: np.empty(0, kind) for name, kind in (kinds | short).items()}


def _long_silences(silences: pa.Table, ids: Int64Array) -> Columns:
    row = _core.places(ids, [numbers(silences["exchange_id"])], ID_STRIDE_BITS)[0]
    from_ns = numbers(silences["from_trace_ns"])
    order = np.lexsort((from_ns, row))
    order = order[row[order] >= 0]
    return {
        "row": row[order],
        "in_response": numbers(silences["in_response"])[order],
        "cause": codes(silences["cause"], CAUSES).astype(np.uint8)[order],
        "from_ns": from_ns[order],
        "to_ns": numbers(silences["to_trace_ns"])[order],
    }


def _short_silences(
    exchanges: pa.Table, long: Columns, name: str, in_response: bool, cause: str
) -> tuple[Int64Array, bool, int, Int64Array]:
    """Rows whose message has short silences of one cause, and their total duration."""
    code, column = CAUSES.index(cause), exchanges[name]
    if column.null_count == len(column):
        return np.empty(0, np.int64), in_response, code, np.empty(0, np.int64)
    sums = numbers(column, 0).copy()
    mine = (long["in_response"] == in_response) & (long["cause"] == code)
    np.subtract.at(sums, long["row"][mine], (long["to_ns"] - long["from_ns"])[mine])
    rows = np.flatnonzero(sums > 0)
    return rows, in_response, code, sums[rows]


def _concat(parts: list[NDArray[np.generic]], kind: type[np.generic]) -> NDArray[np.generic]:
    return np.ascontiguousarray(np.concatenate(parts), dtype=kind)
