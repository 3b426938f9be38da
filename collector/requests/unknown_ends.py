"""Exchanges of a capture of which nothing shows whose it is: neither its client's end nor its server's is known.

Such packets have no direction, so the core takes each stamp for an arrival, and the time between a request and its
answer for the server's work. It is, if the server was captured; if the client was, it is the network's as well. So
these exchanges are given the stamps of one place, as one end alone has them: what lies between is the server's or the
network's, and `one_ended` says that it is not known which end it was.
"""

import pyarrow as pa
import pyarrow.compute as pc

PLACES = (
    ("request_first_sent_trace_ns", "request_first_received_trace_ns"),
    ("request_last_sent_trace_ns", "request_last_received_trace_ns"),
)
HEAD = "request_head_received_trace_ns"


def with_one_place(exchanges: pa.Table) -> pa.Table:
    """`exchanges` with the arrival of a request as its departure, where neither end is known."""
    unknown = pc.and_(pc.is_null(exchanges["client_host"]), pc.is_null(exchanges["server_host"]))
    if not pc.any(unknown).as_py():
        return exchanges
    nothing = pa.scalar(None, pa.int64())
    for sent, received in PLACES:
        at = pc.coalesce(exchanges[sent], exchanges[received])
        exchanges = _with(exchanges, sent, pc.if_else(unknown, at, exchanges[sent]))
        exchanges = _with(exchanges, received, pc.if_else(unknown, nothing, exchanges[received]))
    return _with(exchanges, HEAD, pc.if_else(unknown, nothing, exchanges[HEAD]))


def _with(table: pa.Table, name: str, column: pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, column)
