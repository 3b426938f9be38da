"""Stamps that cannot be: which are believed, what is said of the others, and that the rest is analysed."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from collector.analysis import analyse
from collector.clocks.evidence import Way, without
from collector.decode.absurd_stamps import FAR_NS, RUN_LEAST, _Stamps
from collector.decode.host_capture import HostSource
from collector.trace.reading import Trace
from testkit.capture_records import Record, join, packet_places, split

CAPTURES = Path(__file__).parents[3] / "captures" / "swift-upload-1B"
YEAR_NS = 366 * 86_400 * 10**9
NOW = 1_790_000_000 * 10**9


@pytest.mark.parametrize(
    ("stamps", "believed"),
    [
        ([NOW, NOW + 5, NOW + YEAR_NS - 1], ()),
        ([NOW, NOW + 1, 0, NOW + 2], ((NOW, NOW + 2),)),
        ([NOW, NOW + 1, NOW + 40 * YEAR_NS, NOW + 2, 0], ((NOW, NOW + 2),)),
        ([0] * RUN_LEAST + [NOW] * RUN_LEAST, ()),  # a clock that was set
        ([0, NOW] * RUN_LEAST + [NOW], ((NOW, NOW),)),
        ([0] * (RUN_LEAST - 1) + [NOW] * 100, ((NOW, NOW),)),
    ],
)
def test_what_stands_together_is_believed(stamps: list[int], believed: tuple[tuple[int, int], ...]) -> None:
    for at_once in (1, 3, len(stamps)):
        found = _Stamps()
        for begin in range(0, len(stamps), at_once):
            found.add(np.array(stamps[begin : begin + at_once], dtype=np.int64))
        assert found.valid_ranges() == believed


def with_late_stamps(path: Path, numbers: list[int]) -> bytes:
    """The capture with the stamps of some of its packets 60 years later."""
    records = split(path.read_bytes())
    places = [packet_places(records)[number] for number in numbers]
    return join([_later(record) if place in places else record for place, record in enumerate(records)])


def _later(record: Record) -> Record:
    first, second = record.stamp()
    ticks = (first << 32 | second) + 60 * YEAR_NS
    return record.with_stamp(ticks >> 32, ticks)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The trace of a bundled capture, and of the same with two damaged stamps."""
    folder = tmp_path_factory.mktemp("absurd")
    (folder / "proxy.pcapng").write_bytes(with_late_stamps(CAPTURES / "proxy.pcapng", [3, 40]))
    paths = {path.stem: path for path in sorted(CAPTURES.glob("*.pcapng"))}
    for name, files in (("as it is", paths), ("damaged", paths | {"proxy": folder / "proxy.pcapng"})):
        analyse([HostSource(host, (path,)) for host, path in files.items()], str(folder / name))
    return {name: str(folder / name) for name in ("as it is", "damaged")}


def rows(trace: str, table: str, *columns: str) -> list[tuple[object, ...]]:
    frame = pl.DataFrame(Trace(trace).read(table, list(columns)))
    return sorted(frame.with_columns(pl.col(pl.Categorical).cast(pl.String)).rows(), key=repr)


def test_a_damaged_stamp_is_a_finding_with_file_and_frame(traces: dict[str, str]) -> None:
    assert not [row for row in rows(traces["as it is"], "findings", "kind") if row == ("absurd_stamps",)]
    ((host, count, text),) = [
        row[1:]
        for row in rows(traces["damaged"], "findings", "kind", "host", "count", "text")
        if row[0] == "absurd_stamps"
    ]
    assert (host, count) == ("proxy", 2)
    assert "proxy.pcapng frame 4, 41:" in str(text)
    (counter,) = [each for each in Trace(traces["damaged"]).info().counters if each.name == "stamps_absurd"]
    assert (counter.host, counter.severity, counter.count) == ("proxy", "data_loss", 2)


def test_all_else_is_as_without_the_damage(traces: dict[str, str]) -> None:
    ends = ("send_host", "send_frame", "receive_host", "receive_frame", "state")
    assert rows(traces["damaged"], "hops", *ends) == rows(traces["as it is"], "hops", *ends)
    clocks = ("host", "offset_ns", "skew_ppb", "method")
    assert [row[3] for row in rows(traces["damaged"], "clocks", *clocks)] == ["hull"] * 5
    offsets = [[row[1] for row in rows(trace, "clocks", *clocks)] for trace in traces.values()]
    assert np.abs(np.diff(np.array(offsets, dtype=np.int64), axis=0)).max() < 10_000
    spans = [host.last_host_ns - host.first_host_ns for host in Trace(traces["damaged"]).info().hosts]  # type: ignore[operator]
    assert max(spans) < FAR_NS


def test_clocks_are_compared_without_them() -> None:
    column = np.array([1, 2, 3], dtype=np.int64)
    ways = {("a", "b"): Way(column, column, column, column + 10), ("b", "a"): Way(column, column, column + 10, column)}
    kept = without(ways, {"b": np.array([12], dtype=np.uint32)})
    assert [way.send_frame.tolist() for way in kept.values()] == [[1, 3], [11, 13]]
    assert without(ways, {"a": column.astype(np.uint32)}) == {}
