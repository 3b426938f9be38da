"""Exports every table of a trace as a CSV file, with a header line; null is an empty field."""

from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from collector.trace.reading import Trace
from collector.trace.schema import TABLES


def write(trace: Trace, place: Path) -> list[Path]:
    """Write `<table>.csv` for each table of a trace into the folder `place`; returns the files."""
    place.mkdir(parents=True, exist_ok=True)
    written = []
    for name in TABLES:
        written.append(place / f"{name}.csv")
        pyarrow.csv.write_csv(without_dictionaries(trace.read(name)), written[-1])
    return written


def without_dictionaries(table: pa.Table) -> pa.Table:
    """The table with dictionary columns converted to plain ones, since the CSV writer does not support them."""
    kinds = [field.type.value_type if pa.types.is_dictionary(field.type) else field.type for field in table.schema]
    return table.cast(pa.schema(list(zip(table.column_names, kinds, strict=True))))
