"""One packet of the table `events`: found among the row groups of its connection, else among all."""

from pathlib import Path

import pytest

from collector.analysis import analyse
from collector.decode.sources import host_sources
from collector.trace import parquet_store
from collector.trace.packets import read_packet
from collector.trace.reading import Trace
from tests.helpers.stored_tables import write_table

BUNDLED = Path(__file__).resolve().parents[3] / "captures" / "bench-2-puts"


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trace:
    """Of many connections, in many row groups."""
    monkeypatch.setattr(parquet_store, "ROW_GROUP_ROWS", 8)
    url = str(tmp_path / "trace")
    analyse(host_sources([str(BUNDLED)]), url)
    return Trace(url)


def test_every_packet_is_found_in_its_connection_or_without_it(trace: Trace) -> None:
    columns = ["host", "frame", "connection_id", "src_port", "dst_port", "seq"]
    rows = trace.read("events", columns).to_pylist()
    assert len(rows) > 60
    others = {row["connection_id"] for row in rows} - {None}
    for row in rows[:: len(rows) // 12]:
        wrong = max(others - {row["connection_id"]})
        for connection_id in (row["connection_id"], None, wrong):
            found = read_packet(trace, row["host"], row["frame"], connection_id)
            assert found is not None
            assert (found.host, found.frame, found.seq) == (row["host"], row["frame"], row["seq"])
            assert (found.src_port, found.dst_port) == (row["src_port"], row["dst_port"])
    assert read_packet(trace, "client", 10**6, rows[0]["connection_id"]) is None
    assert read_packet(trace, None, 1, None) is None


def test_only_row_groups_of_its_connection_are_read(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_connection = Trace(str(tmp_path / "by-connection"))  # as the partitions of a long capture are
    Path(by_connection.url).mkdir()
    write_table(by_connection.url, "events", trace.read("events").sort_by("connection_id"))
    row = by_connection.read("events", ["host", "frame", "connection_id"]).slice(40, 1).to_pylist()[0]
    read, kept = list[int](), parquet_store._ParquetTable._read_group

    def note(table: parquet_store._ParquetTable, group: int, columns: list[str]) -> object:
        read.append(group)
        return kept(table, group, columns)

    monkeypatch.setattr(parquet_store._ParquetTable, "_read_group", note)
    packet = read_packet(by_connection, row["host"], row["frame"], None)
    every = len(read)
    read.clear()
    assert read_packet(by_connection, row["host"], row["frame"], row["connection_id"]) == packet
    assert packet is not None
    assert 0 < len(read) < every / 2
