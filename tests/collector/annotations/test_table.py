"""Records become rows: on the trace's timescale, with what both the stamp and the clock are off, by time."""

import pytest

from collector.annotations.records import Kind, Phase, Record, parse_phases, phases_text
from collector.annotations.table import Join, annotations_table
from collector.trace.schema import ANNOTATIONS
from testkit.tables import table

CLOCK = {"from_host_ns": 0, "to_host_ns": 10_000, "from_frame": 1, "to_frame": 9, "skew_ppb": 0, "reference": False}
CLOCKS = table(
    "clocks",
    [
        CLOCK | {"host": "web", "offset_ns": 0, "uncertainty_ns": 0, "reference": True},
        CLOCK | {"host": "db", "offset_ns": 700, "uncertainty_ns": 30},
    ],
)


def record(begin: int, host: str | None = "web", **more: object) -> Record:
    return Record(kind=Kind.LOG, format="nginx", source="access.log", name="GET", text="a line", begin_host_ns=begin,
                  host=host, **more)  # fmt: skip


def test_a_stamp_is_moved_by_what_its_host_s_clock_is_off() -> None:
    rows = annotations_table([record(5_000, "db", uncertainty_ns=500, duration_ns=9)], CLOCKS, {}).to_pylist()
    assert [(row["start_trace_ns"], row["duration_ns"], row["uncertainty_ns"]) for row in rows] == [(4_300, 9, 530)]


def test_of_a_host_without_a_capture_the_stamp_stays_and_its_error_is_not_known() -> None:
    rows = annotations_table([record(5_000, "cache"), record(6_000, None)], CLOCKS, {}).to_pylist()
    assert [(row["host"], row["start_trace_ns"], row["uncertainty_ns"]) for row in rows] == [
        ("cache", 5_000, None),
        (None, 6_000, None),
    ]


def test_a_clock_that_was_not_aligned_leaves_the_error_unknown() -> None:
    clocks = table("clocks", [CLOCK | {"host": "web", "offset_ns": 0, "uncertainty_ns": None}])
    assert annotations_table([record(5_000)], clocks, {})["uncertainty_ns"].to_pylist() == [None]


def test_rows_are_by_trace_time_and_keep_their_joins() -> None:
    given = [record(5_000, "web"), record(5_200, "db"), record(4_600, "web")]
    rows = annotations_table(given, CLOCKS, {1: Join(77, "id")}).to_pylist()
    assert [(row["annotation_id"], row["start_trace_ns"]) for row in rows] == [(0, 4_500), (1, 4_600), (2, 5_000)]
    assert [(row["exchange_id"], row["joined_by"]) for row in rows] == [(77, "id"), (None, None), (None, None)]


def test_without_records_the_table_is_empty_and_of_the_schema() -> None:
    assert annotations_table([], CLOCKS, {}).schema.equals(ANNOTATIONS)


@pytest.mark.parametrize("phases", [(), (Phase("queue", 0),), (Phase("queue", 0), Phase("connect", 3_000_000))])
def test_phases_are_read_back_as_they_were_written(phases: tuple[Phase, ...]) -> None:
    assert parse_phases(phases_text(phases)) == phases
