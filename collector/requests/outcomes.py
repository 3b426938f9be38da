"""Determines the outcome of requests, as far as packets show it: `ok`, `failed`, `abandoned` or `unknown`, the column
`exchanges.outcome`.

A request failed if there is evidence of the failure:

- Its answer is of the class `server_error` or `refused` (`collector.requests.results`): HTTP's 500 and above, 408, 429
  or 499, gRPC's UNAVAILABLE, PostgreSQL's 53300. Any other error of a client is a normal answer: the server did its
  part, and clients provoke such answers on purpose. OpenTelemetry's conventions draw the same line for servers.
- No answer, or an incomplete one, because the server's side ended the connection (`collector.requests.endings`). In a
  protocol without visible heads it is unknown when an answer is complete, and servers answer a goodbye by closing:
  there only a reset counts, and only for a request without a byte of an answer.

A request is abandoned if its client left before the answer was complete: the client gave up, was stopped, or no longer
needed the answer. It is unknown whether the server would have answered, so the duration says nothing about the server.
Without visible heads a client's last message may need no answer (PostgreSQL's Terminate, a log line). There the client
must have waited for one: for `ANSWER_EXPECTED_NS`, or `LONG_WAIT_RATIO` times as long as its slowest answer on that
connection and at least `LONG_WAIT_NS`, or for `GOODBYE_MOST_NS` if an answer came after it had left. And the server
must answer other requests in the trace.

A request is ok if it has a complete answer that shows its class. Everything else is unknown: an answer in a protocol
whose results are not read, a request cut off by the beginning or end of a capture, and one still waiting then, however
long.
"""

from enum import StrEnum

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from collector.requests.endings import BY_CLIENT, Ending
from collector.requests.exchanges import UNKNOWN
from collector.requests.results import FAILURES, StatusClass, has_class, with_results
from collector.trace.arrow import dictionary_array, indices, numbers
from collector.trace.request_times import REQUEST_END

ANSWER_EXPECTED_NS = 1_000_000_000
"""A client that waits so long expects an answer. TCP's first timeout (RFC 6298)."""
LONG_WAIT_NS, LONG_WAIT_RATIO = 100_000_000, 10
"""So does a client that waits so long, and so many times as long as for its slowest answer on that connection. A
program sends its goodbye only milliseconds before it closes, even on a busy host."""


class Outcome(StrEnum):
    """The outcome of a request."""

    OK = "ok"
    FAILED = "failed"
    ABANDONED = "abandoned"
    UNKNOWN = "unknown"


OUTCOMES = [str(each) for each in Outcome]
WAITED = len(OUTCOMES)
"""Preliminary outcome within a partition: left after a wait, in a protocol in which some messages need no answer."""
Server = tuple[str | None, str | None]
"""Host and service."""

_ASKED = (
    *("connection_id", "protocol", "response_bytes", "ending", "closed_trace_ns"),
    *("request_last_sent_trace_ns", "request_last_received_trace_ns"),
)
_ANSWERED = (
    *("connection_id", "request_last_sent_trace_ns", "response_first_received_trace_ns"),
    *("request_last_received_trace_ns", "response_first_sent_trace_ns"),
)


GOODBYE_MOST_NS = 10_000_000
"""A program that sends a goodbye closes sooner; if it waits so long and an answer comes after it left, it expected
it."""


def is_abandoned() -> pl.Expr:
    """Whether a request's client abandoned it; never null."""
    return pl.col("outcome").eq_missing(pl.lit(str(Outcome.ABANDONED)))


def measured_ns() -> pl.Expr:
    """The durations of a group of requests (`outcome`, `duration_ns`) that measure their server: those of all requests
    that were not abandoned; if there are none, those of the abandoned ones."""
    return pl.col("duration_ns").filter(~is_abandoned() | is_abandoned().all())


def with_outcomes(exchanges: pa.Table) -> pa.Table:
    """Exchanges of some connections, which have their endings (`collector.requests.endings`), with `status_class`,
    `result` and a preliminary `outcome`; `final_outcomes` makes it final.

    Cost: two passes over the exchanges; more only for those that one side ended.
    """
    exchanges = with_results(exchanges)
    complete = numbers(exchanges["complete"])
    codes = np.full(len(complete), OUTCOMES.index(Outcome.UNKNOWN), dtype=np.int32)
    codes[complete & ~has_class(exchanges, StatusClass.UNKNOWN)] = OUTCOMES.index(Outcome.OK)
    ended = np.flatnonzero(exchanges["ending"].is_valid().to_numpy())
    if len(ended):
        codes[ended] = _outcomes_of_ended(exchanges, ended)
    codes[has_class(exchanges, *FAILURES)] = OUTCOMES.index(Outcome.FAILED)
    return _with_column(exchanges, dictionary_array(codes, pa.array([*OUTCOMES, "waited"])))


def answering_servers(exchanges: pa.Table) -> frozenset[Server]:
    """The servers that answered a request in a protocol without visible heads."""
    protocol, protocols = indices(exchanges["protocol"])
    if UNKNOWN not in protocols:
        return frozenset()
    answered = (protocol == protocols.index(UNKNOWN)) & exchanges["response_bytes"].is_valid().to_numpy()
    host, hosts = indices(exchanges["server_host"])
    service, services = indices(exchanges["service"])
    pairs = np.unique(np.stack((host[answered], service[answered])), axis=1)
    every: list[list[str | None]] = [[*hosts, None], [*services, None]]  # -1 is the last
    return frozenset((every[0][at], every[1][of]) for at, of in pairs.T.tolist())


def final_outcomes(exchanges: pa.Table, servers: frozenset[Server]) -> pa.Table:
    """`exchanges` from `with_outcomes` with their final outcomes. Arguments: all `servers` that answered requests."""
    codes, names = indices(exchanges["outcome"])
    place = np.array([OUTCOMES.index(name) if name in OUTCOMES else WAITED for name in names] or [0], dtype=np.int32)
    codes = place[codes]
    waited = np.flatnonzero(codes == WAITED)
    if len(waited):
        rows = exchanges.select(["server_host", "service"]).take(pa.array(waited)).to_pylist()
        answers = [(row["server_host"], row["service"]) in servers for row in rows]
        codes[waited] = np.where(answers, OUTCOMES.index(Outcome.ABANDONED), OUTCOMES.index(Outcome.UNKNOWN))
    return _with_column(exchanges, dictionary_array(codes, pa.array(OUTCOMES)))


def _outcomes_of_ended(exchanges: pa.Table, ended: NDArray[np.int64]) -> NDArray[np.int32]:
    """The outcomes of the exchanges in rows `ended`, which one side ended."""
    rows = _frame(exchanges.select(_ASKED).take(pa.array(ended)))
    rows = rows.join(
        _slowest_answers(exchanges, rows["connection_id"]), on="connection_id", how="left", maintain_order="left"
    )
    left, visible = pl.col("ending").is_in(BY_CLIENT), pl.col("protocol") != UNKNOWN
    silent = pl.col("response_bytes").is_null()
    waited_ns = pl.col("closed_trace_ns") - REQUEST_END.expr()
    patient = (waited_ns >= LONG_WAIT_NS) & (waited_ns >= LONG_WAIT_RATIO * pl.col("slowest_ns"))
    answered_later = ~silent & (waited_ns >= GOODBYE_MOST_NS)  # an ending besides: the client had left before it came
    waited = (waited_ns >= ANSWER_EXPECTED_NS) | patient.fill_null(value=False) | answered_later
    failed = visible | (silent & (pl.col("ending") == Ending.SERVER_RESET))
    codes = (
        pl.when(left & visible)
        .then(OUTCOMES.index(Outcome.ABANDONED))
        .when(~left & failed)
        .then(OUTCOMES.index(Outcome.FAILED))
        .when(left & waited.fill_null(value=False))
        .then(WAITED)
        .otherwise(OUTCOMES.index(Outcome.UNKNOWN))
    )
    found: NDArray[np.int32] = rows.select(codes.cast(pl.Int32).alias("outcome"))["outcome"].to_numpy()
    return found


def _slowest_answers(exchanges: pa.Table, wanted: pl.Series) -> pl.DataFrame:
    """`connection_id, slowest_ns`: the longest wait for an answer on each of these connections."""
    mine = np.isin(numbers(exchanges["connection_id"]), wanted.unique().to_numpy())
    rows = _frame(exchanges.select(_ANSWERED).take(pa.array(np.flatnonzero(mine))))
    at_client = pl.col("response_first_received_trace_ns") - pl.col("request_last_sent_trace_ns")
    at_server = pl.col("response_first_sent_trace_ns") - pl.col("request_last_received_trace_ns")
    took = pl.coalesce(at_client, at_server)
    return rows.group_by("connection_id").agg(slowest_ns=took.max())


def _with_column(exchanges: pa.Table, outcome: pa.DictionaryArray) -> pa.Table:
    return exchanges.set_column(exchanges.schema.get_field_index("outcome"), "outcome", outcome)


def _frame(table: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame.with_columns(pl.col(pl.Categorical).cast(pl.String))
