"""Connections of which requests are unknown, or known by turns alone, are counted with a remedy."""

from pathlib import Path

import pyarrow as pa
import pytest

from collector.analysis import analyse
from collector.decode.sources import host_sources
from collector.requests.streams import StreamJudge
from collector.requests.unread_connections import COLUMNS, UNREAD, unread_counters, unread_counts
from testkit.capture_files import pcap
from testkit.tables import table
from tests.collector.services.test_naming import conversation

Row = tuple[int, str, int | None, bool | None]


def connections(*rows: Row) -> pa.Table:
    columns = [pa.array(values) for values in zip(*rows, strict=True)]
    columns[1] = columns[1].dictionary_encode()
    return pa.table(dict(zip(COLUMNS, columns, strict=True)))


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ((1, "http/1.1", 7, None), {}),
        ((1, "http/1.1", 7, True), {}),
        ((1, "tls", 7, False), {"connections_encrypted": 1}),
        ((1, "tls", None, None), {"connections_encrypted": 1}),
        ((1, "tls", 7, True), {}),
        ((1, "unknown", None, None), {"connections_begun_before": 1}),
        ((1, "unknown", 7, None), {"connections_unknown": 1}),
        ((2, "unknown", 7, None), {}),
    ],
)
def test_why_a_connection_is_not_read(row: Row, expected: dict[str, int]) -> None:
    counts = unread_counts(connections(row, (3, "redis", 1, None)), pa.chunked_array([[1, 1, 3]]))
    assert {name: count for name, count in counts.items() if count} == expected
    found = unread_counters(counts, StreamJudge().table(), are_cut=True)
    assert [(counter.name, counter.count) for counter in found] == list(expected.items())


def test_partitions_add_up() -> None:
    one = unread_counts(connections((1, "tls", 7, None), (2, "tls", 7, None)), pa.chunked_array([[1, 2]]))
    two = unread_counts(connections((3, "tls", 7, None)), pa.chunked_array([[3]]))
    (counter,) = unread_counters(one + two, StreamJudge().table(), are_cut=True)
    assert counter.count == 3
    assert "--keys FILE" in counter.remedy


@pytest.mark.parametrize("are_cut", [True, False])
def test_whole_packets_are_asked_for_only_where_some_may_be_cut(are_cut: bool) -> None:
    counts = unread_counts(connections((1, "unknown", 7, None)), pa.chunked_array([[1]]))
    (counter,) = unread_counters(counts, StreamJudge().table(), are_cut=are_cut)
    assert ("tcpdump -s 0" in counter.remedy) is are_cut
    (counter,) = unread_counters({}, table("streams", [{"connection_id": 1, "reason": "unread"}]), are_cut=are_cut)
    assert (counter.name, "tcpdump -s 0" in counter.remedy) == (UNREAD, are_cut)


@pytest.mark.parametrize(("snaplen", "is_cut"), [(160, True), (65_535, False), (262_144, False)])
def test_a_file_states_whether_its_packets_are_whole(tmp_path: Path, snaplen: int, is_cut: bool) -> None:
    file, trace = tmp_path / "client.pcap", str(tmp_path / "trace")
    file.write_bytes(pcap(conversation(7000, b"\x01what", b"\x02that"), snaplen=snaplen))
    info = analyse(host_sources([str(file)]), trace)
    (counter,) = [counter for counter in info.counters if counter.name == "connections_unknown"]
    assert ("tcpdump -s 0" in counter.remedy) is is_cut
