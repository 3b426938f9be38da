"""Exports every table of a trace as a CSV file, with a header line; null is an empty field."""

from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from collector.export.chosen_tables import ChosenRows, table_parts
from collector.reporting.request_rows import RootIds
from collector.trace.reading import Trace
from collector.trace.schema import TABLES


def write(trace: Trace, place: Path, only: RootIds | None = None) -> list[Path]:
    """Write `<table>.csv` for each table of a trace, or of the requests with these `trace_id`s only, into the folder
    `place`; returns the files. Memory: a group of rows."""
    place.mkdir(parents=True, exist_ok=True)
    chosen, written = None if only is None else ChosenRows.of(trace, only), []
    for name, schema in TABLES.items():
        written.append(place / f"{name}.csv")
        plain = without_dictionaries(schema.empty_table()).schema
        with pyarrow.csv.CSVWriter(written[-1], plain) as writer:
            for part in table_parts(trace, name, chosen):
                writer.write_table(without_dictionaries(part).cast(plain))
    return written


def without_dictionaries(table: pa.Table) -> pa.Table:
    """The table with dictionary columns converted to plain ones, since the CSV writer does not support them."""
    kinds = [field.type.value_type if pa.types.is_dictionary(field.type) else field.type for field in table.schema]
    return table.cast(pa.schema(list(zip(table.column_names, kinds, strict=True))))
