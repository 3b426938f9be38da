"""Exports every table of a trace as a Parquet file of its own, from wherever the trace lies."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from collector.export.chosen_tables import ChosenRows, table_parts
from collector.reporting.request_rows import RootIds
from collector.trace.reading import Trace
from collector.trace.schema import TABLES


def write(trace: Trace, place: Path, only: RootIds | None = None) -> list[Path]:
    """Write `<table>.parquet` for each table of a trace, or of the requests with these `trace_id`s only, into the
    folder `place`; returns the files. Memory: a group of rows."""
    place.mkdir(parents=True, exist_ok=True)
    chosen, written = None if only is None else ChosenRows.of(trace, only), []
    for name, schema in TABLES.items():
        written.append(place / f"{name}.parquet")
        plain = pa.schema([(field.name, _plain(field.type)) for field in schema])
        with pq.ParquetWriter(written[-1], plain, compression="zstd") as writer:
            for part in table_parts(trace, name, chosen):
                writer.write_table(part.cast(plain))
    return written


def _plain(kind: pa.DataType) -> pa.DataType:
    """Texts as texts: the parts of a dictionary column have dictionaries of their own."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind
