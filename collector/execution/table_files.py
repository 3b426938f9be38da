"""Files of tables that are read again by the same analysis: without columns that have no value.

Of exchanges, messages and spans about half of the columns say what most traffic has nothing of. Cost: a column that was
left out is made anew when it is read, one for all columns of its type.
"""

from pathlib import Path

import pyarrow as pa

WHOLE = b"whole"
"""Where a table's metadata has the schema of all its columns."""


def write_table(table: pa.Table, path: Path) -> None:
    """Write a table to a file that `read_table` reads. Raises: OSError."""
    kept = without_empty(table, with_dictionaries=True)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, kept.schema) as out:
        out.write_table(kept)


def read_table(path: Path) -> pa.Table:
    """The table in a file, mapped into memory: a column is read where it is used. Raises: OSError."""
    with pa.memory_map(str(path)) as file:
        return with_empty(pa.ipc.open_file(file).read_all())


def without_empty(table: pa.Table, *, with_dictionaries: bool = False) -> pa.Table:
    """The columns that have a value (the first one in any case, for the number of rows); all of them are noted in the
    metadata.

    Arguments: `with_dictionaries`, whether columns are kept, too, of which only a dictionary has values.
    """
    names = [
        name
        for place, (name, column) in enumerate(zip(table.column_names, table.columns, strict=True))
        if not place or column.null_count < len(column) or (with_dictionaries and _has_dictionary(column))
    ]
    return table.select(names).replace_schema_metadata({WHOLE: table.schema.serialize().to_pybytes()})


def with_empty(table: pa.Table) -> pa.Table:
    """The table of which `without_empty` left these columns."""
    whole = pa.ipc.read_schema(pa.py_buffer(table.schema.metadata[WHOLE]))
    there, count = frozenset(table.column_names), table.num_rows
    nulls = {kind: pa.nulls(count, kind) for kind in {field.type for field in whole if field.name not in there}}
    columns = [table[field.name] if field.name in there else nulls[field.type] for field in whole]
    return pa.Table.from_arrays(columns, schema=whole)


def _has_dictionary(column: pa.ChunkedArray) -> bool:
    return pa.types.is_dictionary(column.type) and any(len(chunk.dictionary) for chunk in column.chunks)
