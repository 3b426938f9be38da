"""Writes tables as Parquet files, encoded by the core (`collector/core/tables`).

Any thread can encode rows; the encoded bytes are then written in order.
"""

import base64
import copyreg
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from numpy.typing import NDArray

from collector import _core
from collector.trace.arrow import one_chunk

MAGIC = b"PAR1"
COPIED_BYTES = 1 << 22
"""Read from a file at once."""
Texts = tuple[NDArray[np.int32], NDArray[np.uint8]]
"""Offsets of texts, and their bytes."""
Field = tuple[NDArray[Any], NDArray[np.uint8] | None, NDArray[np.uint8] | Texts | None]


class FileBytes(Struct, frozen=True):
    """Bytes of a file."""

    path: Path
    begin: int
    length: int


class Rows(Struct, frozen=True):
    """Encoded rows of a table with this schema: of each row group its bytes, here or in a file, and its layout."""

    schema: pa.Schema
    groups: Sequence[tuple[NDArray[np.uint8] | FileBytes, _core.RowGroup]]

    def files(self) -> frozenset[Path]:
        """The files that hold their bytes."""
        return frozenset(data.path for data, _ in self.groups if isinstance(data, FileBytes))

    def to_file(self, path: Path) -> "Rows":
        """The same rows, with their bytes in a new file. Raises: OSError."""
        groups: list[tuple[FileBytes, _core.RowGroup]] = []
        begin = 0
        with path.open("wb") as file:
            for data, group in self.groups:
                assert isinstance(data, np.ndarray), "bytes are moved once"
                file.write(data.data)
                groups.append((FileBytes(path, begin, data.nbytes), group))
                begin += data.nbytes
        return Rows(self.schema, groups)


def encode(table: pa.Table, looked_up_by: Sequence[str], group_rows: int) -> Rows:
    """Encode all rows of a table.

    Arguments: `table`, of numbers, bools and texts; `looked_up_by`, columns for which each row group records minimum
    and maximum; `group_rows`, at most so many rows in a row group.
    Cost: 1 to 2 ns a value; safe to call from several threads.
    """
    file, dictionaries = _table_file(table.schema, looked_up_by), Dictionaries()
    parts = (table.slice(begin, group_rows) for begin in range(0, table.num_rows, group_rows))
    return Rows(table.schema, [file.encode(list(_fields(part, dictionaries)), part.num_rows) for part in parts])


class Writer:
    """Writes `Rows` of one schema to a file, which the caller owns."""

    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        self.schema, self._file, self._table = schema, file, _table_file(schema, ())
        self._file.write(MAGIC)

    def write(self, rows: Rows) -> None:
        """Append rows."""
        assert rows.schema.equals(self.schema), "rows of one file have one schema"
        for data, group in rows.groups:
            if isinstance(data, FileBytes):
                self._copy(data)
            else:
                self._file.write(data.data)
            self._table.add(group)

    def _copy(self, data: FileBytes) -> None:
        with data.path.open("rb") as source:
            source.seek(data.begin)
            left = data.length
            while left:
                part = source.read(min(left, COPIED_BYTES))
                assert part, f"{data.path} is cut off"
                self._file.write(part)
                left -= len(part)

    def close(self) -> None:
        """Write the file's footer."""
        arrow_schema = base64.b64encode(self.schema.serialize()).decode()
        self._file.write(self._table.footer([("ARROW:schema", arrow_schema)]).data)


def _table_file(schema: pa.Schema, looked_up_by: Sequence[str]) -> _core.TableFile:
    def kind(column: pa.Field) -> str:
        is_text = pa.types.is_string(column.type) or pa.types.is_dictionary(column.type)
        return "text" if is_text else str(column.type)

    return _core.TableFile(
        [(column.name, kind(column), column.nullable, column.name in looked_up_by) for column in schema]
    )


class Dictionaries:
    """The dictionaries of one table, which columns and row groups share: each is looked at once."""

    def __init__(self) -> None:
        self._texts: dict[tuple[int, int, int], tuple[pa.Array, Texts | None]] = {}

    def texts(self, dictionary: pa.Array) -> Texts | None:
        """The texts of a dictionary; None if some are there twice."""
        if not len(dictionary):
            return np.zeros(1, np.int32), np.empty(0, np.uint8)
        key = (dictionary.buffers()[1].address, dictionary.offset, len(dictionary))
        if key not in self._texts:  # while the dictionary is kept, nothing else is at its address
            self._texts[key] = dictionary, _texts(dictionary) if _are_distinct(dictionary) else None
        return self._texts[key][1]


def _are_distinct(texts: pa.StringArray) -> bool:
    """Whether no two texts are equal. Sorted ones, as those of all addresses, need not be hashed."""
    is_sorted = pc.all(pc.less(texts.slice(0, len(texts) - 1), texts.slice(1))).as_py()
    return is_sorted or len(texts.unique()) == len(texts)


def _texts(array: pa.StringArray) -> Texts:
    _, offsets, data = array.buffers()
    return np.frombuffer(offsets, np.int32, len(array) + 1, array.offset * 4), np.frombuffer(data or b"", np.uint8)


def _fields(table: pa.Table, dictionaries: Dictionaries) -> Iterator[Field]:
    for field, column in zip(table.schema, table.columns, strict=True):
        array = one_chunk(column)
        if pa.types.is_dictionary(field.type) and dictionaries.texts(array.dictionary) is None:
            # readers of Parquet require each text once
            array = array.cast(array.type.value_type).dictionary_encode()
        assert field.nullable or not array.null_count, f"{field.name} is never null"
        known = _bits(array.buffers()[0], array) if array.null_count else None
        values, texts = _values(array, dictionaries)
        yield values, known, texts


def _values(array: pa.Array, dictionaries: Dictionaries) -> tuple[NDArray[Any], NDArray[np.uint8] | Texts | None]:
    _, buffer, *_ = array.buffers()
    if pa.types.is_boolean(array.type):
        return _bits(buffer, array), None
    if pa.types.is_string(array.type):
        return _texts(array)
    if pa.types.is_dictionary(array.type):
        return np.frombuffer(buffer, np.uint32, len(array), array.offset * 4), dictionaries.texts(array.dictionary)
    kind = np.dtype(np.int64 if pa.types.is_floating(array.type) else array.type.to_pandas_dtype())
    return np.frombuffer(buffer, kind, len(array), array.offset * kind.itemsize), None


def _bits(buffer: pa.Buffer, array: pa.Array) -> NDArray[np.uint8]:
    first, odd = divmod(array.offset, 8)
    whole = np.frombuffer(buffer, np.uint8)[first:][: (odd + len(array) + 7) // 8]
    if not odd:
        return whole
    return np.packbits(np.unpackbits(whole, bitorder="little")[odd:][: len(array)], bitorder="little")


copyreg.pickle(_core.RowGroup, lambda group: (_core.RowGroup.from_bytes, (group.to_bytes(),)))
