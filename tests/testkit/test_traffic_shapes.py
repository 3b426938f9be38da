"""The shapes are what they say: read back with dpkt, and nothing but what was lost is missing from an analysis."""

from collections.abc import Callable
from pathlib import Path

import dpkt
import pytest

from collector.analysis import analyse
from collector.decode.host_capture import HostSource
from collector.trace.reading import Trace
from testkit import traffic_shapes
from testkit.traffic_shapes import Written

SHAPES: dict[str, Callable[[Path], Written]] = {
    "keep-alive": lambda folder: traffic_shapes.keep_alive(folder, 3_000, 50),
    "bulk": lambda folder: traffic_shapes.bulk(folder, 3_000),
    "lossy": lambda folder: traffic_shapes.lossy(folder, 5_000),
    "http2": lambda folder: traffic_shapes.http2(folder, 3_000),
}


@pytest.mark.parametrize("write", SHAPES.values(), ids=SHAPES.keys())
def test_an_analysis_finds_what_was_written(write: Callable[[Path], Written], tmp_path: Path) -> None:
    written = write(tmp_path)
    analyse([HostSource(file.stem, (file,)) for file in written.files], str(tmp_path / "trace"))
    trace = Trace(str(tmp_path / "trace"))
    assert sum(host.packets_count for host in trace.info().hosts) == written.packets_count
    states = {row["values"]: row["counts"] for row in trace.read("hops", ["state"])["state"].value_counts().to_pylist()}
    assert states.keys() <= {"matched", "lost"} and states.get("lost", 0) == written.lost_count
    exchanges = trace.read("exchanges", ["complete", "status"]).to_pylist()
    assert len(exchanges) == written.requests_count
    assert all(each["complete"] and each["status"] in (200, 201) for each in exchanges)


def _segments(path: Path) -> list[tuple[float, int, int]]:
    """Stamp, sequence number and length of what the client sent, in the order of the file."""
    found = []
    with path.open("rb") as file:
        for stamp, data in dpkt.pcap.Reader(file):
            ip = dpkt.ethernet.Ethernet(data).data
            if ip.data.dport == traffic_shapes.SERVER_PORT and ip.len > 52:
                found.append((stamp, ip.data.seq, ip.len - 52))
    return found


def test_each_file_is_in_time_order_and_what_is_lost_comes_again(tmp_path: Path) -> None:
    written = traffic_shapes.lossy(tmp_path, 5_000)
    sent, received = (_segments(path) for path in written.files)
    assert all([each[0] for each in rows] == sorted(each[0] for each in rows) for rows in (sent, received))
    assert len(sent) - len(received) == written.lost_count > 5
    assert {each[1:] for each in sent} == {each[1:] for each in received}
    assert [each[1] for each in received] != sorted(each[1] for each in received), "some overtake others"


def test_a_bulk_stream_is_cut_and_merged_at_other_places(tmp_path: Path) -> None:
    sent, received = (_segments(path) for path in traffic_shapes.bulk(tmp_path, 700).files)
    assert [each[2] // traffic_shapes.MSS for each in sent[1:4]] == [40, 40, 40]
    assert [each[2] // traffic_shapes.MSS for each in received[1:5]] == [17, 23, 17, 23]
    assert sum(each[2] for each in sent) == sum(each[2] for each in received)
