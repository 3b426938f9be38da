"""Hops in the order in which matching gives them."""

import pyarrow as pa

from collector.trace.schema import conform


def by_flow(hops: pa.Table) -> pa.Table:
    """Each connection's hops together, and of these each direction's, bytes in their order."""
    order = [("connection_id", "ascending"), ("from_client", "descending"), ("stream_start", "ascending")]
    return conform("hops", hops).sort_by(order)
