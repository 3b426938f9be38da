"""Changes a table of a trace that is written already."""

import pyarrow as pa

from collector.trace.stores import store_at
from collector.trace.writing import TraceWriter


def write_table(url: str, name: str, table: pa.Table) -> None:
    """Write one table of a trace in place of the one that is there."""
    store = store_at(url)
    TraceWriter(store).write_table(name, table)
    if store.folder is None and store.exists():  # an object store's document says how long each table is
        store.write_document(store.read_document())
