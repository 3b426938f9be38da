"""Keeps the columns of a long table that are looked into at any place: in memory while they are short, else in files.

The table comes in parts. Beyond `MOST_IN_MEMORY_ROWS` its columns are written to a temporary folder and mapped, so that
they take pages that the system can drop and read again. A file is removed as soon as it is mapped: its space is free
when nobody uses the column any more.
"""

from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from collector.execution.spill import Spilling, spill_errors

MOST_IN_MEMORY_ROWS = 1 << 19
"""Two groups of a table's rows: they take no more memory than a stage that reads one while it uses another."""


class LongColumns(Spilling):
    """Columns of numbers by name, and tables. A context manager: on exit, what is not `whole` by then is removed.

    Arguments: `spill`, the folder in which files are made (the system's temporary one if None).
    """

    def __init__(self, spill: Path | None = None) -> None:
        super().__init__(spill)
        self._columns: dict[str, _Column] = {}
        self._numbers = count()

    def add(self, **parts: NDArray[Any]) -> None:
        """Add values at the end of each of these columns; they are not to be changed afterwards.

        Raises: `ResourceError` if there is no room for them.
        """
        for name, part in parts.items():
            if name not in self._columns:
                self._columns[name] = _Column(self)
            self._columns[name].add(part)

    def whole(self, name: str) -> NDArray[Any]:
        """All values of a column that has at least one part, read-only; it is none of these columns any more."""
        return self._columns.pop(name).whole()

    def keep(self, values: NDArray[Any]) -> NDArray[Any]:
        """The same values, read-only. Raises: as `add`."""
        column = _Column(self)
        column.add(values)
        return column.whole()

    def new_path(self) -> Path:
        """Where a file can be made. Raises: OSError."""
        return self.path(f"{next(self._numbers):05}")


class _Column:
    def __init__(self, place: LongColumns) -> None:
        self._place, self._rows = place, 0
        self._parts: list[NDArray[Any]] = []
        self._path: Path | None = None

    def add(self, part: NDArray[Any]) -> None:
        self._parts = [each for each in (*self._parts, part) if len(each)] or [part]
        self._rows += len(part)
        if self._rows > MOST_IN_MEMORY_ROWS:
            with spill_errors(self._place.spill):
                if self._path is None:
                    self._path = self._place.new_path()
                with self._path.open("ab") as file:
                    for each in self._parts:
                        file.write(np.ascontiguousarray(each).data)
            self._parts = [part[:0]]

    def whole(self) -> NDArray[Any]:
        if self._path is None:
            return self._parts[0] if len(self._parts) == 1 else np.concatenate(self._parts)
        mapped = np.memmap(self._path, self._parts[0].dtype, "r")
        self._path.unlink()
        return mapped.view(np.ndarray)


class LongTable:
    """A table that is made part by part, and kept as the columns of a `LongColumns` are."""

    def __init__(self, place: LongColumns) -> None:
        self._place, self._rows = place, 0
        self._parts: list[pa.Table] = []
        self._nulls: dict[pa.DataType, pa.Array] = {}

    def add(self, part: pa.Table) -> None:
        """Add rows at the end. Raises: `ResourceError` if there is no room for them."""
        first = 0 if self._rows <= MOST_IN_MEMORY_ROWS else len(self._parts)
        self._parts.append(part)
        self._rows += part.num_rows
        if self._rows > MOST_IN_MEMORY_ROWS:
            with spill_errors(self._place.spill):
                for number in range(first, len(self._parts)):
                    self._parts[number] = self._to_file(self._parts[number])

    def whole(self) -> pa.Table:
        """All rows, in a chunk for each part; at least one part, which may be empty, was added."""
        return pa.concat_tables(self._parts)

    def _to_file(self, part: pa.Table) -> pa.Table:
        """The same rows, from a file. Columns of nulls are not written, and share their memory. Raises: OSError."""
        columns = dict(zip(part.column_names, part.columns, strict=True))
        held = [name for name, column in columns.items() if column.null_count < len(column)]
        rows, path = part.select(held).unify_dictionaries(), self._place.new_path()
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, rows.schema) as out:
            out.write_table(rows)
        with pa.memory_map(str(path)) as file:
            mapped = pa.ipc.open_file(file).read_all()
        path.unlink()
        arrays = [
            mapped[name] if name in held else self._nulls_of(column.type, len(column))
            for name, column in columns.items()
        ]
        return pa.table(arrays, schema=part.schema)

    def _nulls_of(self, kind: pa.DataType, count: int) -> pa.Array:
        if len(self._nulls.get(kind, ())) < count:
            self._nulls[kind] = pa.nulls(count, kind)
        return self._nulls.get(kind, pa.nulls(0, kind)).slice(0, count)
