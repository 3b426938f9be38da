"""Tables of numbers and of few texts as Parquet files, encoded by the core (`tracer/core/tables`).

Rows are encoded by themselves, by any thread, and their bytes are then written in turn. Tables with columns of free
text are not for it; these are small, and Arrow writes them (`collector.store`).
"""

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from collector.columns import one_chunk
from tracer import _core

MAGIC = b"PAR1"
KINDS = {pa.bool_(), pa.uint8(), pa.uint16(), pa.uint32(), pa.int32(), pa.int64(), pa.float64()}
"""Types of columns besides texts."""

Field = tuple[NDArray[Any], NDArray[np.uint8] | None, list[str] | None]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table of this schema, as they stand in its file."""

    schema: pa.Schema
    groups: Sequence[tuple[NDArray[np.uint8], _core.RowGroup]]


def holds(schema: pa.Schema) -> bool:
    """Whether all its columns are numbers, or texts by dictionary."""
    return all(column.type in KINDS or _is_text(column.type) for column in schema)


def encode(table: pa.Table, looked_up_by: Sequence[str], group_rows: int) -> Rows:
    """All rows of a table.

    Arguments: `table`, of a schema that `holds`; `looked_up_by`, columns of which each row group tells the extremes;
    `group_rows`, the rows of a row group at most.
    Cost: 1 to 2 ns a value; safe to call from several threads.
    """
    file = _table_file(table.schema, looked_up_by)
    parts = (table.slice(begin, group_rows) for begin in range(0, table.num_rows, group_rows))
    return Rows(table.schema, [file.encode(list(_fields(part)), part.num_rows) for part in parts])


class Writer:
    """Writes `Rows` of one schema to a file, which stays the caller's."""

    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        self.schema, self._file, self._table = schema, file, _table_file(schema, ())
        self._file.write(MAGIC)

    def write(self, rows: Rows) -> None:
        """Write rows after those that are there."""
        assert rows.schema.equals(self.schema), "rows of one file have one schema"
        for data, group in rows.groups:
            self._file.write(data.data)
            self._table.add(group)

    def close(self) -> None:
        """Write the file's end."""
        arrow_schema = base64.b64encode(self.schema.serialize()).decode()
        self._file.write(self._table.footer([("ARROW:schema", arrow_schema)]).data)


def _table_file(schema: pa.Schema, looked_up_by: Sequence[str]) -> _core.TableFile:
    def kind(column: pa.Field) -> str:
        return "text" if _is_text(column.type) else str(column.type)

    return _core.TableFile(
        [(column.name, kind(column), column.nullable, column.name in looked_up_by) for column in schema]
    )


def _is_text(kind: pa.DataType) -> bool:
    return kind == pa.dictionary(pa.int32(), pa.string())


def _fields(table: pa.Table) -> Iterator[Field]:
    for field, column in zip(table.schema, table.columns, strict=True):
        array = one_chunk(column)
        assert field.nullable or not array.null_count, f"{field.name} is never null"
        places, texts = _places(array) if _is_text(field.type) else (array, None)
        validity, values = places.buffers()
        known = _bits(validity, places) if places.null_count else None
        yield _values(values, places, texts is not None), known, texts


def _places(array: pa.DictionaryArray) -> tuple[pa.Array, list[str]]:
    """Places in a list of texts, in which each stands once: a Parquet reader takes it for granted."""
    texts = array.dictionary.to_pylist()
    if len(set(texts)) < len(texts):
        array = array.cast(pa.string()).dictionary_encode()
        texts = array.dictionary.to_pylist()
    return array.indices, texts


def _values(buffer: pa.Buffer, array: pa.Array, are_places: bool) -> NDArray[Any]:
    if array.type == pa.bool_():
        return _bits(buffer, array)
    bits = {pa.float64(): np.int64, pa.int32(): np.uint32 if are_places else np.int32}
    kind = np.dtype(bits.get(array.type) or array.type.to_pandas_dtype())
    return np.frombuffer(buffer, kind, len(array), array.offset * kind.itemsize)


def _bits(buffer: pa.Buffer, array: pa.Array) -> NDArray[np.uint8]:
    first, odd = divmod(array.offset, 8)
    whole = np.frombuffer(buffer, np.uint8)[first:][: (odd + len(array) + 7) // 8]
    if not odd:
        return whole
    return np.packbits(np.unpackbits(whole, bitorder="little")[odd:][: len(array)], bitorder="little")
