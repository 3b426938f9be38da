"""What links and ledgers are made from: of each exchange its times as they are, and its texts as numbers.

A trace's texts (targets, transaction ids) take more memory than all the rest, and links only compare them.
"""

from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from collector import _core
from collector.capture_files.records import Columns
from collector.requests.exchanges import NO_BYTE, RANGE
from collector.requests.parents import with_own_ids
from collector.requests.silences import SUM_COLUMNS
from collector.trace.arrow import nullable, numbers, one_chunk, sharing_nulls, texts
from collector.trace.schema import EXCHANGES

STALLS = ("connect_stall_ns", "request_stall_ns", "response_stall_ns")

COLUMNS = [
    *("exchange_id", "connection_id", "client_host", "server_host", "service"),
    *("background", "method", "protocol", "request_bytes", "response_bytes"),
    *("connect_start_trace_ns", "connected_trace_ns", "connected_received_trace_ns", "greeting_sent_trace_ns"),
    *("greeting_received_trace_ns", "tls_start_trace_ns", "tls_end_trace_ns"),
    *("request_first_sent_trace_ns", "request_last_sent_trace_ns", "request_first_received_trace_ns"),
    *("continue_sent_trace_ns", "continue_received_trace_ns", "body_sent_trace_ns", "request_last_received_trace_ns"),
    *("response_first_sent_trace_ns", "response_first_received_trace_ns"),
    *("response_last_sent_trace_ns", "response_last_received_trace_ns", "given_up_trace_ns", *STALLS, *SUM_COLUMNS),
    *("ending", "closed_trace_ns", "status"),
]
"""Columns of `exchanges` needed beside `target`, `transaction_id` and `response_transaction_id`."""
TARGET = "target_number"
"""A number for each whole target, 0 if unknown: what a ledger compares, too."""
WORDS = "words"
"""The words of a target and of the byte range that is asked for, hashed to 32 bits."""
OF_LINKS = ("asked_id", "answered_id", "path_number", WORDS)
"""What only links need, beside: 64-bit hashes of transaction ids, 0 without one (they collide in one of 10^7 traces);
targets without their queries, as `TARGET`."""


def linking_columns(exchanges: Iterable[pa.Table]) -> pa.Table:
    """`COLUMNS`, `TARGET` and `OF_LINKS` of a table `exchanges` in parts.

    Memory: about 330 bytes for each exchange, less where columns hold only nulls.
    """
    return pa.concat_tables([_of_part(EXCHANGES.empty_table()), *(_of_part(part) for part in exchanges)])


def _of_part(part: pa.Table) -> pa.Table:
    found: dict[str, NDArray[np.uint64]] = {
        TARGET: target_numbers(part["target"]),
        "asked_id": _hashes(part["transaction_id"]),
        "answered_id": _hashes(part["response_transaction_id"]),
        "path_number": _hashes(part["target"], _core.path_numbers),
    }
    columns, words = sharing_nulls(part.select(COLUMNS)), _words(part)
    for name, values in found.items():
        columns = columns.append_column(name, nullable(values))
    listed = pa.FixedSizeListArray.from_arrays(pa.array(words.ravel()), words.shape[1])
    return columns.append_column(WORDS, listed)


def words_of(columns: pa.Table) -> NDArray[np.uint32]:
    """The words of each target, of shape (rows, words), 0 for none."""
    listed = one_chunk(columns[WORDS])
    return np.ascontiguousarray(listed.flatten().to_numpy()).reshape(-1, listed.type.list_size)


def target_numbers(targets: pa.ChunkedArray) -> NDArray[np.uint64]:
    """A number for each target, 0 if unknown."""
    return _hashes(targets)


def shown_ids(columns: pa.Table) -> NDArray[np.uint64]:
    """The transaction id of each exchange: its request's, or its response's if other exchanges show that one.

    A client's own id (`X-Request-Id`) may end at the first server, which uses another one in its answer and its calls.
    """
    asked, answered = numbers(columns["asked_id"]), numbers(columns["answered_id"])
    if not answered.any():
        return asked
    goes_on = (answered != 0) & np.isin(answered, asked)
    return np.where(goes_on, answered, asked)


def _words(exchanges: pa.Table) -> NDArray[np.uint32]:
    """The words of targets. A gateway names an object of a store of its own after the bucket's id and the object that
    it was asked for, with `_` between (RADOS Gateway): there the first `_` ends a word."""
    ranges = {name: numbers(exchanges[name], NO_BYTE) for name in RANGE}
    own, target = with_own_ids(exchanges), exchanges["target"]
    if own.any():
        parts = pc.replace_substring(target, "_", "/", max_replacements=1)
        target = pc.if_else(pa.array(own), parts, target)
    return _core.linking_words(texts(target) | ranges)


def _hashes(
    ids: pa.ChunkedArray, numbers_of: Callable[[Columns], NDArray[np.uint64]] = _core.text_numbers
) -> NDArray[np.uint64]:
    if ids.null_count == len(ids):
        return np.zeros(len(ids), np.uint64)
    found = numbers_of(texts(ids))
    if ids.null_count:
        found[ids.is_null().to_numpy()] = 0
    return found
