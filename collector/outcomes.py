"""Whether requests went well, as far as packets show it: `ok`, `failed` or `unknown`, the column `exchanges.outcome`.

Failed is what is seen to have failed:

- A status from 500 on, and 408, 429 and 499: the server says that it did not serve the request (RFC 9110 §15.6),
  refused it for its time or number (RFC 9110 §15.5.9, RFC 6585 §4), or that its client had left (nginx, MinIO). Any
  other 4xx is an answer: the server did its part, and clients ask so on purpose (Swift's HEAD before a PUT gets 404, a
  first request without credentials 401, a conditional one 412). OpenTelemetry's HTTP conventions judge servers by the
  same line.
- A reset before the answer was whole. In a protocol without visible heads nobody knows when an answer is whole, and
  clients close connections by a reset as well: there only a reset by the server's side counts, of a request that has no
  byte of an answer, on a connection that its client had not closed.
- No answer: with visible heads, either side closed the connection without one. Without, the last thing that a client
  says may want no answer (PostgreSQL's Terminate, a log line), so the client must have waited `LATE_NS` before it
  closed, for a server that answers others in that trace.

Ok is a whole answer with a status. All else is unknown: an answer in a protocol without visible status, what was cut
off by the beginning or the end of a capture, and what still waited then, however long. An answer that its server ended
early (FIN) is unknown as well: it looks like one that a capture did not see to its end.
"""

from enum import StrEnum

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from collector.columns import coded, indices, numbers
from collector.exchanges import UNKNOWN

SERVER_ERROR = 500
"""Statuses from here on are failures of the service (RFC 9110 §15.6)."""
REFUSED = (408, 429, 499)
"""Request Timeout, Too Many Requests, Client Closed Request: nothing is wrong with the request itself."""
LATE_NS = 1_000_000_000
"""A client that waits so long wants an answer. As TCP's first timeout (RFC 6298)."""


class Outcome(StrEnum):
    """What became of a request."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


OUTCOMES = [str(each) for each in Outcome]
WAITED = len(OUTCOMES)
"""While a partition is looked at: no answer within `LATE_NS`, of a protocol in which some messages want none."""
Server = tuple[str | None, str | None]
"""Host and service."""

_ENDS = ("connection_id", "kind", "from_client", "send_trace_ns", "receive_trace_ns")
_ASKED = (
    *("connection_id", "protocol", "response_bytes", "request_last_sent_trace_ns", "request_last_received_trace_ns"),
    *("response_last_sent_trace_ns", "response_last_received_trace_ns"),
)


def is_failure(status: NDArray[np.uint16]) -> NDArray[np.bool_]:
    """Which statuses say that the server did not do its part; 0 is none."""
    return (status >= SERVER_ERROR) | np.isin(status, REFUSED)


def with_outcomes(exchanges: pa.Table, hops: pa.Table) -> pa.Table:
    """Exchanges of some connections with `outcome`, not yet settled (`settled`).

    Arguments: all hops of these connections, with trace times.
    Cost: two passes over the exchanges; those without a whole answer are looked at as rows.
    """
    status, complete = numbers(exchanges["status"]), numbers(exchanges["complete"])
    codes = np.full(len(status), OUTCOMES.index(Outcome.UNKNOWN), dtype=np.int32)
    codes[complete & (status > 0)] = OUTCOMES.index(Outcome.OK)
    cut = np.flatnonzero(~complete)
    if len(cut):
        codes[cut] = _of_cut(exchanges.select(_ASKED).take(pa.array(cut)), hops)
    codes[is_failure(status)] = OUTCOMES.index(Outcome.FAILED)
    return _with_column(exchanges, coded(codes, pa.array([*OUTCOMES, "waited"])))


def answering(exchanges: pa.Table) -> frozenset[Server]:
    """Servers that answered anything in a protocol without visible heads."""
    protocol, protocols = indices(exchanges["protocol"])
    if UNKNOWN not in protocols:
        return frozenset()
    answered = (protocol == protocols.index(UNKNOWN)) & exchanges["response_bytes"].is_valid().to_numpy()
    host, hosts = indices(exchanges["server_host"])
    service, services = indices(exchanges["service"])
    pairs = np.unique(np.stack((host[answered], service[answered])), axis=1)
    every: list[list[str | None]] = [[*hosts, None], [*services, None]]  # -1 is the last
    return frozenset((every[0][at], every[1][of]) for at, of in pairs.T.tolist())


def settled(exchanges: pa.Table, servers: frozenset[Server]) -> pa.Table:
    """`exchanges` of `with_outcomes` with their outcomes, now that all `servers` that answered are known."""
    codes, names = indices(exchanges["outcome"])
    place = np.array([OUTCOMES.index(name) if name in OUTCOMES else WAITED for name in names] or [0], dtype=np.int32)
    codes = place[codes]
    waited = np.flatnonzero(codes == WAITED)
    if len(waited):
        rows = exchanges.select(["server_host", "service"]).take(pa.array(waited)).to_pylist()
        told = [Outcome.FAILED if (row["server_host"], row["service"]) in servers else Outcome.UNKNOWN for row in rows]
        codes[waited] = [OUTCOMES.index(each) for each in told]
    return _with_column(exchanges, coded(codes, pa.array(OUTCOMES)))


def _of_cut(exchanges: pa.Table, hops: pa.Table) -> NDArray[np.int32]:
    """Outcomes of exchanges without a whole answer, by what ended their connections."""
    rows = _frame(exchanges)
    rows = rows.join(_closings(hops, rows["connection_id"]), on="connection_id", how="left", maintain_order="left")
    spoke = pl.max_horizontal(
        pl.coalesce("request_last_sent_trace_ns", "request_last_received_trace_ns"),
        pl.coalesce("response_last_received_trace_ns", "response_last_sent_trace_ns"),
    )
    silent, visible = pl.col("response_bytes").is_null(), pl.col("protocol") != UNKNOWN
    closed = pl.min_horizontal("closed_ns", "server_closed_ns") >= spoke
    reset = pl.min_horizontal("reset_ns", "server_reset_ns") >= spoke
    first = (pl.col("closed_ns") >= pl.col("server_reset_ns")).fill_null(True)
    broken = silent & first & (pl.col("server_reset_ns") >= spoke)
    failed = pl.when(visible).then(reset | (silent & closed)).otherwise(broken)
    waited = ~visible & silent & (pl.col("closed_ns") - spoke >= LATE_NS)
    codes = (
        pl.when(failed.fill_null(False))
        .then(OUTCOMES.index(Outcome.FAILED))
        .when(waited.fill_null(False))
        .then(WAITED)
        .otherwise(OUTCOMES.index(Outcome.UNKNOWN))
    )
    found: NDArray[np.int32] = rows.select(codes.cast(pl.Int32).alias("outcome"))["outcome"].to_numpy()
    return found


def _closings(hops: pa.Table, wanted: pl.Series) -> pl.DataFrame:
    """`connection_id`, and when its client and its server first closed or reset it, in trace time.

    These are `closed_ns, reset_ns, server_closed_ns, server_reset_ns`; a reset closes as well.
    """
    kind, kinds = indices(hops["kind"])
    ending = [kinds.index(name) for name in ("fin", "rst") if name in kinds]
    rows = _frame(hops.select(_ENDS).take(pa.array(np.flatnonzero(np.isin(kind, ending)))))
    rows = rows.filter(pl.col("connection_id").is_in(wanted.unique().implode()))
    at, client, rst = pl.coalesce("send_trace_ns", "receive_trace_ns"), pl.col("from_client"), pl.col("kind") == "rst"
    return rows.group_by("connection_id").agg(
        closed_ns=at.filter(client).min(),
        reset_ns=at.filter(client & rst).min(),
        server_closed_ns=at.filter(~client).min(),
        server_reset_ns=at.filter(~client & rst).min(),
    )


def _with_column(exchanges: pa.Table, outcome: pa.DictionaryArray) -> pa.Table:
    return exchanges.set_column(exchanges.schema.get_field_index("outcome"), "outcome", outcome)


def _frame(table: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame.with_columns(pl.col(pl.Categorical).cast(pl.String))
