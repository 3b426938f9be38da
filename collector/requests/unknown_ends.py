"""Corrects exchanges of a capture that may be the client's or the server's: it is unknown which end was captured.

Such packets have no direction. The core treats each timestamp as an arrival, and the time between a request and its
answer as the server's work. That is right if the server was captured; if the client was, the time includes the network.
So these exchanges get the timestamps of one place, as one end alone has them: the time between is the server's or the
network's, and `one_ended` reports that it is unknown which end it was.
"""

import pyarrow as pa
import pyarrow.compute as pc

PLACES = (
    ("request_first_sent_trace_ns", "request_first_received_trace_ns"),
    ("request_last_sent_trace_ns", "request_last_received_trace_ns"),
)
HEAD = "request_head_received_trace_ns"


def with_one_place(exchanges: pa.Table) -> pa.Table:
    """`exchanges` with the arrival of a request used as its departure if neither end is known."""
    unknown = pc.and_(pc.is_null(exchanges["client_host"]), pc.is_null(exchanges["server_host"]))
    if not pc.any(unknown).as_py():
        return exchanges
    nothing = pa.scalar(None, pa.int64())
    for sent, received in PLACES:
        at = pc.coalesce(exchanges[sent], exchanges[received])
        exchanges = _with_column(exchanges, sent, pc.if_else(unknown, at, exchanges[sent]))
        exchanges = _with_column(exchanges, received, pc.if_else(unknown, nothing, exchanges[received]))
    return _with_column(exchanges, HEAD, pc.if_else(unknown, nothing, exchanges[HEAD]))


def _with_column(table: pa.Table, name: str, column: pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, column)
