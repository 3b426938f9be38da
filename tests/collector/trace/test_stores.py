"""A trace is whole or it is not there, and what is no trace is named."""

import errno
import json
from itertools import islice
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from collector.trace import parquet_store, stores
from collector.trace.model import CommandInfo, CounterInfo, HostInfo, PointInfo, ServiceInfo, TraceInfo
from collector.trace.reading import Trace
from collector.trace.schema import CLOCKS, FORMAT_VERSION, TABLES
from collector.trace.writing import write_trace
from tests.helpers.memory_store import MemoryStore
from tests.helpers.stored_tables import write_table
from tracer.errors import InputError, ResourceError

INFO = TraceInfo(
    created_ns=1_700_000_000_000_000_000,
    tool_version="0.1.0",
    hosts=(
        HostInfo("client", ("10.77.0.10",), (PointInfo("client/eth0", "eth0", "ethernet"),), ("c.pcap",), 3, 2, 10, 20),
        HostInfo("silent", (), (), (), 0, 0, None, None),
    ),
    counters=(CounterInfo("client", "capture_truncated", "data_loss", 1, "capture again"),),
    command=CommandInfo(("swift", "upload"), "client", 5, 25, 0),
    services=(ServiceInfo("proxy", 8080, "swift-proxy", "is asked for /v1"),),
)
CLOCK_ROW = {
    "host": "client",
    "from_host_ns": 10,
    "to_host_ns": 20,
    "from_frame": 1,
    "to_frame": 9,
    "offset_ns": 0,
    "skew_ppb": 0,
    "uncertainty_ns": 0,
    "likely_error_ns": 0,
    "reference": True,
    "method": "reference",
}


def save(url: str, info: TraceInfo = INFO) -> None:
    with write_trace(url) as writer:
        writer.write_table("clocks", pa.Table.from_pylist([CLOCK_ROW]))
        writer.write_info(info)


@pytest.fixture(params=["", "memory://", "arrow://"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A place on disk, on an object store, and in a store of another kind."""
    monkeypatch.setitem(stores.STORES, "arrow", MemoryStore)
    return f"{request.param}{tmp_path.name}/trace" if request.param else str(tmp_path / "trace")


def test_what_is_written_is_read_back(url: str) -> None:
    save(url)
    assert Trace(url).info() == INFO
    assert Trace(url).read("clocks").to_pylist() == [CLOCK_ROW]
    assert Trace(url).read("clocks").schema.equals(CLOCKS)
    assert Trace(url).read("clocks", ["host", "offset_ns"]).column_names == ["host", "offset_ns"]
    assert all(Trace(url).read(name).schema.equals(schema) for name, schema in TABLES.items())


def test_columns_that_hold_nothing_are_known_without_their_rows(tmp_path: Path) -> None:
    place, row = str(tmp_path / "trace"), {**CLOCK_ROW, "uncertainty_ns": None, "likely_error_ns": None}
    with write_trace(place) as writer:
        writer.append("clocks", pa.Table.from_pylist([row] * 9, CLOCKS))
        writer.append("clocks", pa.Table.from_pylist([row, {**row, "uncertainty_ns": 5}], CLOCKS))
        writer.write_info(INFO)
    assert Trace(place).empty_columns("clocks") == {"likely_error_ns"}
    assert Trace(place).empty_columns("annotations") >= {"host"}  # it has no row
    assert not [*Trace(place).batches_with_any("clocks", ["host"], ["likely_error_ns"])]
    some = Trace(place).batches_with_any("clocks", ["host"], ["likely_error_ns", "uncertainty_ns"])
    assert [batch.column_names for batch in some] == [["host"], ["host"]]


def test_columns_that_hold_nothing_are_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_store, "ROW_GROUP_ROWS", 4)
    hosts = pa.array([None] * 4 + ["a", None, "b", None])
    none = {"flag": pa.nulls(8, pa.bool_()), "text": pa.nulls(8, pa.string()), "real": pa.nulls(8, pa.float64())}
    stored = pa.table({"host": hosts.dictionary_encode(), **none, "host_ns": range(8)})
    write_table(str(tmp_path), "samples", stored)
    found = Trace(str(tmp_path)).read("samples", ["host_ns", "real", "text", "host", "flag"])
    found.validate(full=True)
    assert found.schema.equals(stored.select(found.column_names).schema)
    assert found.to_pylist() == stored.select(found.column_names).to_pylist()
    zeros = {found[name].chunk(0).buffers()[1].address for name in none}
    assert len(zeros | {found["host"].chunk(0).indices.buffers()[1].address}) == 1
    assert Trace(str(tmp_path)).read("samples", ["flag"]).num_rows == 8


def test_columns_beyond_the_schema_are_kept(url: str) -> None:
    save(url)
    write_table(url, "clocks", pa.Table.from_pylist([CLOCK_ROW | {"rounds": 3}]))
    assert Trace(url).read("clocks", ["rounds"]).to_pylist() == [{"rounds": 3}]


def test_a_trace_replaces_a_trace(url: str, tmp_path: Path) -> None:
    save(url)
    save(url, replace(INFO, command=None))
    assert Trace(url).info().command is None
    assert [path.name for path in tmp_path.iterdir()] in ([], ["trace"])


def test_an_error_while_writing_leaves_nothing_new(url: str, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), write_trace(url) as writer:
        writer.write_table("clocks", pa.Table.from_pylist([CLOCK_ROW]))
        _ = 1 // 0
    assert not Trace(url).exists()
    assert list(tmp_path.iterdir()) == []
    save(url)
    assert Trace(url).exists()


def test_an_error_while_writing_keeps_the_old_trace(tmp_path: Path) -> None:
    url = str(tmp_path / "trace")
    save(url)
    with pytest.raises(ZeroDivisionError), write_trace(url):
        _ = 1 // 0
    assert Trace(url).info() == INFO


def test_a_url_without_rename_is_no_trace_until_it_is_whole() -> None:
    url = "memory://store-test/late"
    with write_trace(url) as writer:
        writer.write_table("clocks", pa.Table.from_pylist([CLOCK_ROW]))
        writer.write_info(INFO)
        assert not Trace(url).exists()
    assert Trace(url).exists()


def no_such(place: Path) -> None:
    del place


def empty_directory(place: Path) -> None:
    place.mkdir()


def capture_file(place: Path) -> None:
    place.write_bytes(b"\0" * 24)


def other_files(place: Path) -> None:
    place.mkdir()
    (place / "client.pcap").write_bytes(b"\0")


def newer_format(place: Path) -> None:
    place.mkdir()
    (place / "trace.json").write_text(json.dumps({"format_version": 99}))


def older_format(place: Path) -> None:
    place.mkdir()
    (place / "trace.json").write_text(json.dumps({"format_version": FORMAT_VERSION - 1}))


def not_json(place: Path) -> None:
    place.mkdir()
    (place / "trace.json").write_text("{")


def wrong_shape(place: Path) -> None:
    place.mkdir()
    (place / "trace.json").write_text(json.dumps({"format_version": FORMAT_VERSION, "created_ns": 1}))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (no_such, "no such trace"),
        (empty_directory, "empty directory"),
        (capture_file, "is a file; a trace is a directory"),
        (other_files, "holds client.pcap"),
        (older_format, f"a trace of format {FORMAT_VERSION - 1}; this version reads format {FORMAT_VERSION}"),
        (newer_format, "format 99"),
        (not_json, "trace.json is damaged"),
        (wrong_shape, "trace.json is damaged"),
    ],
)
def test_what_is_no_trace_is_named(tmp_path: Path, make, message: str) -> None:
    place = tmp_path / "place"
    make(place)
    for read in (lambda: Trace(str(place)).info(), lambda: Trace(str(place)).read("hops")):
        with pytest.raises(InputError, match=message):
            read()


@pytest.mark.parametrize(("make", "message"), [(capture_file, "is a file"), (other_files, "other files")])
def test_what_is_no_trace_is_not_overwritten(tmp_path: Path, make, message: str) -> None:
    place = tmp_path / "place"
    make(place)
    with pytest.raises(InputError, match=message):
        save(str(place))
    assert place.exists()


@pytest.mark.parametrize("content", [None, b"", b"PAR1 not parquet"])
def test_a_damaged_table_is_named(tmp_path: Path, content: bytes | None) -> None:
    url = str(tmp_path / "trace")
    save(url)
    table = tmp_path / "trace" / "hops.parquet"
    table.unlink()
    if content is not None:
        table.write_bytes(content)
    with pytest.raises(InputError, match="table hops"):
        Trace(url).read("hops")


@pytest.mark.parametrize("part", ["footer", "rows"])
def test_a_table_with_damaged_bytes_is_named(tmp_path: Path, part: str) -> None:
    url = str(tmp_path / "trace")
    save(url)
    table = tmp_path / "trace" / "hops.parquet"
    content = bytearray(table.read_bytes())
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    damaged = range(footer, footer + 40) if part == "footer" else range(4, 40)
    for place in damaged:
        content[place] ^= 0xFF
    table.write_bytes(content)
    with pytest.raises(InputError, match="table hops is damaged"):
        Trace(url).read("hops")


def test_a_full_disk_is_the_operators(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*_args: object, **_options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(parquet_store.encoded.Writer, "write", full)
    with pytest.raises(ResourceError, match=r"No space left on device.*free some space"):
        save(str(tmp_path / "trace"))
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_url_is_the_users() -> None:
    with pytest.raises(InputError, match="gopher"):
        Trace("gopher://host/trace").info()


def test_memory_urls_are_left_clean() -> None:
    fs = fsspec.filesystem("memory")
    save("memory://store-test/clean")
    assert not [name for name in fs.find("/store-test") if "partial" in name]


def test_rows_are_read_by_place_and_by_value_across_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_store, "ROW_GROUP_ROWS", 10)
    hosts = ["a"] * 25 + ["b"] * 25
    samples = pa.table(
        {
            "host": pa.array(hosts).dictionary_encode(),
            "host_ns": pa.array([*range(25), *range(25)], pa.int64()),
            "metric": pa.array(["cpu"] * 50).dictionary_encode(),
            "value": [float(row) for row in range(50)],
        }
    )
    write_table(str(tmp_path), "samples", samples)
    columns = ("host", "host_ns", "value")
    assert Trace(str(tmp_path)).rows_between("samples", ["value"], 18, 4)["value"].to_pylist() == [18, 19, 20, 21]
    cases = [("a", 24, [24.0]), ("b", 0, [25.0]), ("b", 24, [49.0]), ("c", 1, []), ("a", 99, [])]
    for host, host_ns, expected in cases:
        found = Trace(str(tmp_path)).rows_matching("samples", columns, {"host": host, "host_ns": host_ns})
        assert found["value"].to_pylist() == expected


def test_a_table_of_another_version_is_said_in_one_line(tmp_path: Path) -> None:
    pq.write_table(pa.table({"host": ["a"], "host_ns": [1]}), tmp_path / "samples.parquet")
    with pytest.raises(InputError, match="samples has no column metric, value, so another version wrote it"):
        Trace(str(tmp_path)).read("samples")
    assert Trace(str(tmp_path)).read("samples", ["host_ns"])["host_ns"].to_pylist() == [1]


def test_a_replaced_trace_is_never_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "trace"
    _write_of(place, 1)
    if not parquet_store._exchange(place, place):
        pytest.skip("this file system cannot exchange two names")
    monkeypatch.setattr(Path, "rename", None)  # two renames would leave a moment without it
    _write_of(place, 2)
    assert Trace(str(place)).info().created_ns == 2
    assert list(tmp_path.iterdir()) == [place]


def test_a_trace_is_replaced_where_names_cannot_be_exchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "trace"
    monkeypatch.setattr(parquet_store, "_exchange", lambda one, other: False)
    for created_ns in (1, 2):
        _write_of(place, created_ns)
    assert Trace(str(place)).info().created_ns == 2
    assert list(tmp_path.iterdir()) == [place]


@pytest.mark.parametrize("error", [InputError("a row that is no more", "open it again"), ValueError("other lengths")])
def test_what_is_read_is_of_one_trace(tmp_path: Path, error: Exception) -> None:
    place = tmp_path / "trace"
    _write_of(place, 1)
    newer = iter((2, 3))

    def read(info: TraceInfo) -> int:
        for created_ns in islice(newer, 1):
            _write_of(place, created_ns)
            if created_ns == 3:
                raise error
        return info.created_ns

    assert Trace(str(place)).read_unchanged(read) == 3


def test_a_trace_that_is_always_replaced_is_reported(tmp_path: Path) -> None:
    place = tmp_path / "trace"
    _write_of(place, 1)
    with pytest.raises(InputError, match="replaced faster than it can be read"):
        Trace(str(place)).read_unchanged(lambda info: _write_of(place, info.created_ns + 1))


def test_an_error_of_a_trace_that_stays_is_passed_on(tmp_path: Path) -> None:
    place = tmp_path / "trace"
    _write_of(place, 1)
    with pytest.raises(InputError, match="has no column"):
        Trace(str(place)).read_unchanged(lambda _: Trace(str(place)).read("hops", ["no_such"]))
    with pytest.raises(ZeroDivisionError):
        Trace(str(place)).read_unchanged(lambda info: info.created_ns // 0)


def _write_of(place: Path, created_ns: int) -> None:
    with write_trace(str(place)) as writer:
        writer.write_info(replace(INFO, created_ns=created_ns))
