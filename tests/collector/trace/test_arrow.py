"""Arrow columns as the core takes them."""

import numpy as np
import pyarrow as pa
import pytest

from collector.trace.arrow import (
    coalesce,
    codes,
    for_each,
    indices,
    null_array,
    nullable_where,
    numbers,
    one_chunk,
    plain_texts,
    sharing_nulls,
    take_rows,
    unify_dictionaries,
    value_codes,
)

HOSTS = pa.chunked_array([pa.array(["b", None]), pa.array(["a", "b"])])


def test_numbers_have_a_stand_in_for_null_whatever_the_chunks() -> None:
    column = pa.chunked_array([pa.array([1, None], pa.uint32()), pa.array([3], pa.uint32())])
    assert numbers(column, missing=7).tolist() == [1, 7, 3]
    assert numbers(pa.chunked_array([], pa.int64())).tolist() == []
    bools = pa.array([True, False, False, True, True, False, True, False, False, True])
    assert numbers(bools).tolist() == [True, False, False, True, True, False, True, False, False, True]
    assert numbers(bools.slice(3, 6)).tolist() == [True, True, False, True, False, False]
    assert numbers(bools[:0]).tolist() == []


def test_texts_are_places_in_their_list() -> None:
    for column in (HOSTS, HOSTS.dictionary_encode()):
        place, texts = indices(column)
        assert [None if at < 0 else texts[at] for at in place] == ["b", None, "a", "b"]


def test_equal_values_have_equal_numbers() -> None:
    for column in (HOSTS, HOSTS.dictionary_encode()):
        first, missing, other, again = value_codes(column).tolist()
        assert first == again != other and missing == -1
    assert value_codes(pa.array([80, None, 65_535], pa.uint16())).tolist() == [80, -1, 65_535]


def test_codes_follow_the_order_that_is_asked_for() -> None:
    assert codes(pa.chunked_array([pa.array(["x", "y", "x"])]), ["z", "y", "x"]).tolist() == [2, 1, 2]


def test_texts_of_several_columns_have_one_list() -> None:
    (one, other), names = unify_dictionaries(HOSTS, pa.array(["c", "a"]))
    assert (one.tolist(), other.tolist(), names) == ([1, -1, 0, 1], [2, 0], ["a", "b", "c"])
    (none,), names = unify_dictionaries(HOSTS[:0])
    assert (none.tolist(), names) == ([], [])


def test_the_first_column_that_is_not_null_counts_wherever_its_chunks_begin() -> None:
    first, second = [None, 1, None, 3, None, None], [7, 8, None, 9, 10, None]
    columns = {
        "first": pa.chunked_array([pa.array(first[:2], pa.int64()), pa.array(first, pa.int64())[2:]]),
        "second": pa.chunked_array([pa.array(second[:3], pa.int64()), pa.array(second[3:], pa.int64())]),
    }
    table = pa.table(columns)
    assert coalesce(table, ["first", "second"], missing=-1).tolist() == [7, 1, -1, 3, 10, -1]
    assert coalesce(table[1:4], ["first"], missing=-1).tolist() == [1, -1, 3]
    assert coalesce(table[:0], ["first"], missing=-1).tolist() == []


def test_rows_are_taken_from_the_chunks_that_have_them() -> None:
    table = pa.table({"host": HOSTS.dictionary_encode(), "number": pa.chunked_array([[1], [2, 3, 4]])})
    for rows in ([0, 3], [1, 2], [2], []):
        assert take_rows(table, np.array(rows, np.int64)).to_pylist() == [table.to_pylist()[row] for row in rows]


def test_one_chunk_is_not_copied() -> None:
    array = pa.array([1, 2, 3])
    assert one_chunk(pa.chunked_array([array])).buffers()[1].address == array.buffers()[1].address


def test_what_is_missing_is_null_and_no_value_is_copied() -> None:
    values, missing = np.arange(10), np.isin(np.arange(10), [1, 9])
    column = nullable_where(values, missing)
    column.validate(full=True)
    assert column.to_pylist() == [0, None, 2, 3, 4, 5, 6, 7, 8, None]
    assert column.buffers()[1].address == values.ctypes.data
    whole = nullable_where(values, values < 0)
    assert whole.null_count == 0
    assert numbers(pa.chunked_array([whole])).ctypes.data == values.ctypes.data


def test_columns_of_nothing_but_nulls_share_their_memory() -> None:
    names = pa.array([None, None], pa.string())
    columns = {"a": pa.nulls(2, pa.int64()), "b": pa.array([None, 1]), "c": pa.nulls(2, pa.float64())}
    table = pa.table(columns | {"d": names, "e": names.dictionary_encode(), "f": pa.nulls(2, pa.bool_())})
    shared = sharing_nulls(table)
    shared.validate(full=True)
    assert shared.equals(table)
    assert shared.schema.equals(table.schema)
    data = {name: shared[name].chunk(0).buffers()[1].address for name in "abcf"}
    assert data["a"] == data["c"] == data["f"] != data["b"]
    assert sharing_nulls(table.slice(0, 0)).equals(table.slice(0, 0))


def test_nulls_of_every_type_share_their_memory() -> None:
    kinds = [pa.int64(), pa.bool_(), pa.string(), pa.dictionary(pa.int32(), pa.string())]
    made = [null_array(3, kind) for kind in kinds]
    for kind, nulls in zip(kinds, made, strict=True):
        nulls.validate(full=True)
        assert nulls.equals(pa.nulls(3, kind)) and nulls.type == kind
    assert len({nulls.buffers()[1].address for nulls in made}) == 1
    assert len(null_array(0, kinds[3])) == 0


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint16, np.uint8])
def test_one_value_stands_for_all_rows(kind: type[np.integer]) -> None:
    for value in (0, 1, np.iinfo(kind).max, *([] if np.iinfo(kind).min == 0 else [-1, -2])):
        values = for_each(np.array([value], kind), 3)
        assert values.dtype == kind and values.tolist() == [value] * 3
    assert for_each(np.array([5, 6], kind), 2).tolist() == [5, 6]
    assert for_each(np.array([], kind), 0).tolist() == []


def test_rows_of_minus_one_share_their_memory() -> None:
    assert np.shares_memory(for_each(np.array([-1]), 3), for_each(np.array([-1], np.int32), 2))


def test_first_known_of_columns_without_any_is_not_to_be_written() -> None:
    table = pa.table({"a": pa.nulls(3, pa.int64()), "b": pa.nulls(3, pa.int64()), "c": pa.array([None, 2, 3])})
    found = coalesce(table, ["a", "b"], -7)
    assert found.tolist() == [-7, -7, -7]
    assert not found.flags.writeable
    assert coalesce(table, ["a", "c"], -7).tolist() == [-7, 2, 3]


def test_plain_texts_keep_order_nulls_and_other_columns() -> None:
    coded = pa.chunked_array([HOSTS.chunk(0).dictionary_encode(), HOSTS.chunk(1).dictionary_encode()])
    table = pa.table({"host": coded, "port": [1, 2, None, 4]})
    assert plain_texts(table).equals(pa.table({"host": HOSTS, "port": [1, 2, None, 4]}))
