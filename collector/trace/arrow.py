"""Converts between Arrow columns and the core's arrays: numpy arrays of fixed dtype, texts as codes."""

from collections.abc import Mapping, Sequence
from functools import cache
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, mmap
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from collector import _core
from collector.capture_files.records import Columns


def numbers(column: pa.ChunkedArray | pa.Array, missing: int = 0) -> NDArray[Any]:
    """A column of numbers as an array, with `missing` for null; not copied if it is one chunk without nulls or
    bools."""
    whole = one_chunk(column)
    if whole.null_count:
        whole = whole.fill_null(missing)
    if pa.types.is_boolean(whole.type) and len(whole):
        end = whole.offset + len(whole)
        packed = np.frombuffer(whole.buffers()[1], np.uint8)
        return np.unpackbits(packed, count=end, bitorder="little")[whole.offset :].view(np.bool_)
    return np.ascontiguousarray(whole.to_numpy(zero_copy_only=False))


def take_rows(table: pa.Table, rows: NDArray[np.int64]) -> pa.Table:
    """Some rows of a table, in ascending order; only chunks with such rows are read."""
    parts, begin = [table.slice(0, 0)], 0
    for batch in table.to_batches():
        first, last = np.searchsorted(rows, (begin, begin + len(batch)))
        if first < last:
            parts.append(pa.Table.from_batches([batch.take(pa.array(rows[first:last] - begin))]))
        begin += len(batch)
    return pa.concat_tables(parts).unify_dictionaries()


def coalesce(table: pa.Table, names: Sequence[str], missing: int) -> NDArray[np.int64]:
    """For each row, the first value of these columns (int64) that is not null, or `missing` if all are.

    Not copied, so not to be written, if the first is in one chunk and has no null, or if all are null (such arrays
    share their memory); else a pass of the core, on all cores.
    """
    columns = table.select(names)
    first = columns.column(0)
    if first.num_chunks == 1 and not first.null_count:
        return first.chunk(0).to_numpy()
    if len(first) and all(column.null_count == len(column) for column in columns.columns):
        return shared_constant(missing, len(first))
    batches = columns.to_batches()
    return _core.coalesce([[_piece(batch.column(name)) for batch in batches] for name in names], missing)


def _piece(values: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8], int]:
    """Its values, a bit for each that is not null (empty if none is null), and the offset of these bits."""
    validity, data = values.buffers()
    bits = np.frombuffer(validity, np.uint8) if values.null_count else ALL_VALID
    return np.frombuffer(data or b"", np.int64)[values.offset :][: len(values)], bits, values.offset


def indices(column: pa.ChunkedArray | pa.Array) -> tuple[NDArray[np.int32], list[str]]:
    """A column of texts as indices in a list of its distinct texts, -1 for null."""
    encoded = _dictionary_encoded(column)
    return value_codes(encoded), encoded.dictionary.to_pylist()


def value_codes(column: pa.ChunkedArray | pa.Array) -> NDArray[np.int32]:
    """A number for each value of a column of texts or of small numbers, the same for equal values; -1 for null."""
    if pa.types.is_integer(column.type):
        return numbers(column.cast(pa.int32()), missing=-1)
    return numbers(_dictionary_encoded(column).indices.cast(pa.int32()), missing=-1)


def _dictionary_encoded(column: pa.ChunkedArray | pa.Array) -> pa.DictionaryArray:
    whole = one_chunk(column)
    return whole if isinstance(whole, pa.DictionaryArray) else whole.dictionary_encode()


def unify_dictionaries(*columns: pa.ChunkedArray | pa.Array) -> tuple[list[NDArray[np.int32]], list[str]]:
    """Columns of texts as indices in one sorted list of all their texts, -1 for null."""
    found = [indices(column) for column in columns]
    names = sorted({text for _, texts in found for text in texts if text is not None})
    place_of = {name: place for place, name in enumerate(names)}
    codes = (np.array([*(place_of.get(text, -1) for text in texts), -1], dtype=np.int32) for _, texts in found)
    return [code[place] for code, (place, _) in zip(codes, found, strict=True)], names


def codes(column: pa.ChunkedArray | pa.Array, names: Sequence[str]) -> NDArray[np.uint8]:
    """A column of texts, none null, as indices in `names`, which has all of them."""
    place, texts = indices(column)
    code = bytes(names.index(text) for text in texts).ljust(1 << 8)
    return np.frombuffer(place.astype(np.uint8).tobytes().translate(code), np.uint8)


ALL_VALID: NDArray[np.uint8] = np.empty(0, dtype=np.uint8)


def plain_texts(table: pa.Table) -> pa.Table:
    """The table with texts in place of dictionaries: polars takes these faster than it takes categories and casts them,
    above all where most texts differ."""
    is_coded = pa.types.is_dictionary
    kinds = [field.with_type(pa.string()) if is_coded(field.type) else field for field in table.schema]
    return table.cast(pa.schema(kinds))


def nullable(values: NDArray[Any], validity: NDArray[np.uint8] = ALL_VALID) -> pa.Array:
    """An Arrow array of numbers, not copied; `validity` has a bit for each value that is not null, or is empty."""
    bits = pa.py_buffer(validity) if len(validity) else None
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [bits, pa.py_buffer(values)])


def null_array(count: int, kind: pa.DataType) -> pa.Array:
    """An array of `count` nulls; all such arrays share one buffer of zeros."""
    if pa.types.is_dictionary(kind):
        places, nothing = null_array(count, kind.index_type), pa.array([], kind.value_type)
        return pa.DictionaryArray.from_arrays(places, nothing, ordered=kind.ordered, safe=False)
    zeros = _equal_bytes(0, count.bit_length())
    return pa.Array.from_buffers(kind, count, [zeros] * kind.num_buffers, null_count=count)


def sharing_nulls(table: pa.Table) -> pa.Table:
    """The same table; columns that hold only nulls share one buffer, as in `null_array`."""
    columns = [
        null_array(len(column), column.type)
        if len(column) and column.null_count == len(column) and not pa.types.is_dictionary(column.type)
        else column
        for column in table.columns
    ]
    return pa.Table.from_arrays(columns, schema=table.schema)


@cache
def _equal_bytes(byte: int, bits: int) -> pa.Buffer:
    """8 bytes for each of less than 2^bits rows, and for the offset behind them. Zeros take no memory: they are
    pages that were never written."""
    size = 8 << bits
    if byte == 0:
        return pa.py_buffer(mmap(-1, size, flags=MAP_PRIVATE | MAP_ANONYMOUS, prot=PROT_READ))
    return pa.py_buffer(bytes([byte]) * size)


def for_each(values: NDArray[Any], count: int) -> NDArray[Any]:
    """The values of `count` rows; if it is one value, that of all of them.

    Not to be written if it is one value: arrays of 0, and of -1, share their memory.
    """
    if len(values) == count:
        return values
    (value,) = values
    if value not in (0, -1):
        return np.full(count, value)
    return np.frombuffer(_equal_bytes(255 if value else 0, count.bit_length()), values.dtype, count)


def shared_constant(value: int, count: int) -> NDArray[np.int64]:
    """An array of one value, `count` times, read-only: all such arrays share their memory."""
    return _constant_of_bits(value, count.bit_length())[:count]


@cache
def _constant_of_bits(value: int, bits: int) -> NDArray[np.int64]:
    """As `shared_constant`, for any count below 2^bits."""
    constant = np.full(1 << bits, value)
    constant.flags.writeable = False
    return constant


def nullable_where(values: NDArray[Any], missing: NDArray[np.bool_]) -> pa.Array:
    """An Arrow array of numbers, not copied, with null where `missing`."""
    return nullable(values, bits(~missing))


def bits(known: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """The validity bits of known rows, for `nullable`."""
    return ALL_VALID if known.all() else np.packbits(known, bitorder="little")


def dictionary_array(
    places: NDArray[np.int32], names: pa.Array, validity: NDArray[np.uint8] = ALL_VALID
) -> pa.DictionaryArray:
    """A dictionary array from indices in `names`, not copied; `validity` as in `nullable`."""
    return pa.DictionaryArray.from_arrays(nullable(places, validity), names, safe=False)


def table_of_schema(
    schema: pa.Schema,
    found: Mapping[str, NDArray[Any]],
    dictionaries: Mapping[str, pa.Array],
    validity: Mapping[str, NDArray[np.uint8]],
) -> pa.Table:
    """The columns of `schema` that are in `found`, in its order; numbers are not copied.

    Arguments: `found`, numbers, or for a column of texts indices in its array of `dictionaries`; `validity` as in
    `nullable`, for columns that have nulls.
    """
    columns = {}
    for field in schema:
        if field.name in found:
            values, known = found[field.name], validity.get(field.name, ALL_VALID)
            if pa.types.is_dictionary(field.type):
                columns[field.name] = dictionary_array(values, dictionaries[field.name], known)
            else:
                columns[field.name] = pa.array(values) if values.dtype == bool else nullable(values, known)
    return pa.table(columns)


def texts(column: pa.ChunkedArray | pa.Array) -> Columns:
    """Texts as one buffer: `offsets` (int32, one more than texts) into `bytes`; nulls are empty."""
    whole = one_chunk(column).cast(pa.string())
    if not len(whole):
        return {"offsets": np.zeros(1, dtype=np.int32), "bytes": np.empty(0, dtype=np.uint8)}
    _, offsets, data = whole.buffers()
    return {
        "offsets": np.frombuffer(offsets, np.int32)[whole.offset :][: len(whole) + 1],
        "bytes": np.frombuffer(data or b"", np.uint8),
    }


def string_array(
    offsets: NDArray[np.int32], data: NDArray[np.uint8], validity: NDArray[np.uint8] = ALL_VALID
) -> pa.StringArray:
    """A string array from the result of `texts`, not copied; `validity` as in `nullable`."""
    known = pa.py_buffer(validity) if len(validity) else None
    return pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data), known)


def one_chunk(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The column as one array; not copied if it is one chunk (`combine_chunks` would copy it)."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
