"""When a request begins and ends: the one definition, used wherever a time or a duration of a request is needed.

The packets of a request pass two hosts, of which one or both may be captured, so each moment of it may be seen twice,
as sent and as received. A moment is the first of its stamps that was seen; all are on the trace's timescale.

    client  BEGIN ── REQUEST_END ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄ RESPONSE_BEGIN ── RESPONSE_END, END
    server        SERVER_BEGIN ── ARRIVED ─ work ─ first byte sent ── SERVER_END

A request lasts from BEGIN to END, as its client sees it. The edge cases:

- Opened for it: if the connection was opened for this request, it begins with the SYN, and the client's pause between
  handshake and BEGIN is no part of its duration: `collector.requests.openings` decides, `start_trace_ns` and `pause_ns`
  of a span hold the result. If the server speaks first, the pause begins only with its greeting.
- One-ended: if only one host was captured, its stamps stand for both ends, so the duration is that host's.
- Unanswered: without an answer it ends when its client gave up (`given_up`). If it did not, END is unknown: the request
  has no duration, and views draw it to the last moment that was seen of it and say "at least".
- Abandoned: an answer that was broken off ends with the last byte of it that was seen; END is not when the connection
  closed (`closed_trace_ns`).
- No beginning: if none of the request was seen, BEGIN is unknown; views draw it from the first moment that was seen.
- Stream: an exchange that is part of a stream has no span; the table `streams` has its first and last packet.

The order of the table `exchanges` is by none of these but by the earliest stamp (`earliest_ns`), which every exchange
has. The core's ledger computes with these moments as columns that are made here; the crate that infers links reads the
stamps themselves, by the same rules.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from collector.trace.arrow import coalesce
from collector.trace.time_columns import UNSEEN, Int64Array


@dataclass(frozen=True, slots=True, init=False)
class Moment:
    """A moment of a request: columns of the table `exchanges`, of which the first that is not null counts."""

    columns: tuple[str, ...]

    def __init__(self, *stamps: str) -> None:
        object.__setattr__(self, "columns", tuple(f"{stamp}_trace_ns" for stamp in stamps))

    def expr(self) -> pl.Expr:
        """The moment of each row of a frame; null if unknown."""
        return pl.coalesce(self.columns)

    def times(self, exchanges: pa.Table, unknown: int = UNSEEN) -> Int64Array:
        """The moment of each row of a table, in any number of chunks. Cost: a pass of the core, on all cores."""
        return coalesce(exchanges, list(self.columns), unknown)


BEGIN = Moment("request_first_sent", "request_first_received")
"""The first byte of the request, at its client."""
REQUEST_END = Moment("request_last_sent", "request_last_received")
"""The last byte of the request, at its client."""
SERVER_BEGIN = Moment("request_first_received", "request_first_sent")
"""The first byte of the request, at its server: from then on the server may call others for it."""
ARRIVED = Moment("request_last_received", "request_first_received")
"""The request is at its server, as far as that was captured."""
HEARD = Moment("request_first_received", "request_last_received")
"""The first byte of the request at its server, if that was captured; unknown otherwise."""
ANSWERED = Moment("response_first_sent", "given_up")
"""The server's work for the request ends: it answers, or its client gives up."""
RESPONSE_BEGIN = Moment("response_first_received", "response_first_sent")
"""The first byte of the answer, at the client."""
FIRST_RETURN = Moment("response_first_received", "response_first_sent", "given_up")
"""When the client first had something to go on with: the first byte of the answer, or that it gave up."""
RESPONSE_END = Moment("response_last_received", "response_last_sent")
"""The last byte of the answer, at the client; unknown for a request without an answer."""
END = Moment("response_last_received", "response_last_sent", "given_up")
"""The end of the request, at its client."""
SERVER_END = Moment("response_last_sent", "response_last_received", "given_up")
"""The end of the request, at its server."""


def was_opened_for() -> pl.Expr:
    """Whether the connection of each span was opened for it, from its `start_trace_ns`."""
    return pl.col("start_trace_ns").eq(pl.col("connect_start_trace_ns")).fill_null(value=False)


def shown_start(columns: Iterable[str]) -> pl.Expr:
    """Where a view draws a span's beginning: where it begins, or else the earliest of its times among `columns`."""
    return pl.coalesce("start_trace_ns", pl.min_horizontal(name for name in columns if name.endswith("_trace_ns")))


def shown_end(columns: Iterable[str]) -> pl.Expr:
    """Where a view draws a span's end: where it ends, or else the latest of its times among `columns`."""
    return pl.coalesce("end_trace_ns", pl.max_horizontal(name for name in columns if name.endswith("_trace_ns")))


def earliest_ns(exchanges: pa.Table) -> Int64Array:
    """The earliest stamp of a request's messages, by which the table `exchanges` is sorted; 0 without any."""
    of_messages = re.compile(r"(request|response)_.*_trace_ns")
    times = pl.DataFrame(exchanges.select([name for name in exchanges.column_names if of_messages.fullmatch(name)]))
    return np.asarray(times.min_horizontal().fill_null(0).to_numpy())
