"""Tables of a trace from rows, and hops in the order in which matching gives them."""

import pyarrow as pa

from collector.trace.schema import TABLES, conform

BASE_NS = 1_000_000_000_000


def by_flow(hops: pa.Table) -> pa.Table:
    """Each connection's hops together, and of these each direction's, bytes in their order."""
    order = [("connection_id", "ascending"), ("from_client", "descending"), ("stream_start", "ascending")]
    return conform("hops", hops).sort_by(order)


def table(name: str, rows: list[dict[str, object]]) -> pa.Table:
    """Rows as a table of the schema `name`; what a row does not say is null."""
    said = {column for row in rows for column in row} or set(TABLES[name].names)
    columns = {
        column.name: pa.array([row.get(column.name) for row in rows], _plain(column.type))
        for column in TABLES[name]
        if column.name in said
    }
    return conform(name, pa.table(columns))


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind
