"""Protocol Buffers' wire format, against Google's own reader and writer."""

import numpy as np
import pytest
from google.protobuf.descriptor_pb2 import UninterpretedOption
from google.protobuf.duration_pb2 import Duration
from google.protobuf.wrappers_pb2 import DoubleValue, Int64Value, UInt64Value
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from collector.export.protobuf import (
    field,
    fixed64,
    fixed64_fields,
    int_fields,
    message_fields,
    read_fields,
    write_rows,
)

INTEGERS = [0, 1, 127, 128, 300, (1 << 35) - 1, 1 << 35, (1 << 63) - 1, -1, -300, -(1 << 63)]


@pytest.mark.parametrize("value", INTEGERS)
def test_integers_are_written_as_google_does(value: int) -> None:
    assert (field(1, value) if value else b"") == Int64Value(value=value).SerializeToString()


def test_other_fields_are_written_as_google_does() -> None:
    assert field(1, 0.1) == DoubleValue(value=0.1).SerializeToString()
    assert fixed64(7, 1 << 63) == Span(start_time_unix_nano=1 << 63).SerializeToString()
    assert field(5, "é" * 100) == Span(name="é" * 100).SerializeToString()
    assert field(1, b"\0\xff") == Span(trace_id=b"\0\xff").SerializeToString()


def test_rows_of_integers_are_read_as_they_were() -> None:
    values = np.array(INTEGERS, np.int64)
    written = write_rows(int_fields(1, values), len(values))
    size = len(written) // len(values)
    read = [Int64Value.FromString(written[at : at + size]).value for at in range(0, len(written), size)]
    assert read == INTEGERS


@pytest.mark.parametrize(("most", "width"), [(0, 1), (127, 1), (128, 2), (1 << 62, 9)])
def test_rows_are_as_wide_as_the_largest_number_needs(most: int, width: int) -> None:
    values = np.array([0, most], np.int64)
    written = write_rows(int_fields(1, values), 2)
    assert len(written) == 2 * (1 + width)
    assert UInt64Value.FromString(written[1 + width :]).value == most


def test_rows_of_messages_hold_what_is_common_and_what_is_not() -> None:
    numbers = np.array([1, 1 << 40, 5], np.int64)
    event = message_fields(11, [field(2, "arrived"), *fixed64_fields(1, numbers), *int_fields(4, numbers % 1000)])
    written = write_rows(message_fields(2, event), 3)
    spans = [message for _, message in read_fields(written)]
    for span, number in zip(spans, numbers.tolist(), strict=True):
        assert isinstance(span, bytes)
        (read,) = Span.FromString(span).events
        assert (read.name, read.time_unix_nano, read.dropped_attributes_count) == ("arrived", number, number % 1000)


def test_what_google_writes_is_read() -> None:
    message = Span(name="a", start_time_unix_nano=5, dropped_events_count=7, flags=9)
    fields = {5: b"a", 7: (5).to_bytes(8, "little"), 12: 7, 16: (9).to_bytes(4, "little")}
    assert dict(read_fields(message.SerializeToString())) == fields
    assert dict(read_fields(Duration(seconds=-1).SerializeToString())) == {1: (1 << 64) - 1}


def test_what_is_cut_is_no_message() -> None:
    whole = Span(name="a name", start_time_unix_nano=5, dropped_events_count=1 << 20).SerializeToString()
    fields = list(read_fields(whole))
    for size in range(len(whole)):
        try:
            assert list(read_fields(whole[:size])) in (fields[:0], fields[:1], fields[:2])
        except ValueError as error:
            assert "no message" in str(error)
    for wrong in (b"\x0b", b"\xff" * 11):
        with pytest.raises(ValueError, match="no message"):
            list(read_fields(wrong))


def test_several_fields_of_a_number_are_kept() -> None:
    parts = [UninterpretedOption.NamePart(name_part=name, is_extension=False) for name in "ab"]
    read = read_fields(UninterpretedOption(name=parts).SerializeToString())
    assert [number for number, _ in read] == [2, 2]
