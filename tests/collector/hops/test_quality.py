"""The counts of pairing, and their sums."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from collector.analysis import HostSource, analyse
from collector.hops.quality import (
    CONNECTION_COLUMNS,
    COUNTS,
    connections_of,
    percent,
    quality_of,
    summary_of,
)
from collector.trace.reading import Trace
from testkit.netsim import Clock, Network, NetworkPath, Station
from testkit.tables import by_flow, table
from tests.helpers.scripts import play

SCRIPT = """
    client:40000 > proxy:8080                // perfect
        0 > 0:100
      100 < 0:50
    client:40001 > proxy:8080                // one copy lost; an answer that the client's capture missed
        0 > 0:100 lost
      200 > 0:100 #2
      300 < 0:50 unseen
    proxy:50000 > storage1:6200              // clocks that cannot be right
        0 > 0:1000
      100 < 0:10 late=-30
      200 < 10:20 late=-30
    -:9 > proxy:8080                         // a client that nobody captured
        0 > 0:10
"""


def quality_and_connections() -> tuple[pa.Table, pa.Table]:
    tables = play(SCRIPT)
    return quality_of(by_flow(tables.hops)), tables.connections


def some(counts: object) -> dict[str, int]:
    """The counts that are not 0."""
    return {name: getattr(counts, name) for name in ("hops_count", *COUNTS) if getattr(counts, name)}


def test_each_direction_of_a_connection_has_its_counts() -> None:
    rows = quality_and_connections()[0].to_pylist()
    keys = ("connection_id", "send_host", "receive_host")
    assert [tuple(row[key] for key in keys) for row in rows] == [
        (1, "client", "proxy"),
        (1, "proxy", "client"),
        (2, "client", "proxy"),
        (2, "proxy", "client"),
        (3, "proxy", "storage1"),
        (3, "storage1", "proxy"),
        (4, None, "proxy"),
    ]
    counted = [{name: row[name] for name in COUNTS if row[name]} for row in rows]
    assert counted[2] == {
        "matched_count": 1,
        "lost_count": 1,
        "retransmitted_count": 1,
        "bytes": 100,
        "matched_bytes": 100,
    }
    assert counted[3] == {"capture_dropped_count": 1, "bytes": 50}
    assert counted[5] == {"matched_count": 2, "early_count": 2, "bytes": 20, "matched_bytes": 20}
    assert counted[6] == {"outside_window_count": 1}


def hop(from_client: bool, send: int, receive: int, start: int, end: int) -> dict[str, Any]:
    hosts = ("client", "proxy") if from_client else ("proxy", "client")
    return {
        **{"connection_id": 1, "kind": "data", "state": "matched", "from_client": from_client, "attempt": 1},
        **{"send_host": hosts[0], "receive_host": hosts[1], "send_frame": send, "receive_frame": receive},
        **{"stream_start": start, "stream_end": end},
    }


@pytest.mark.parametrize(
    ("hops", "split"),
    [
        ([hop(True, 1, 1, 0, 9), hop(True, 2, 2, 9, 12)], 0),
        ([hop(True, 1, 1, 0, 9), hop(True, 1, 2, 9, 12), hop(True, 2, 3, 12, 15)], 2),
        ([hop(True, 1, 1, 0, 9), hop(True, 1, 2, 9, 12), hop(True, 2, 2, 12, 15)], 3),
        ([hop(True, 7, 8, 0, 9), hop(False, 7, 9, 0, 9)], 0),  # frame 7 of two hosts
    ],
    ids=["one to one", "one send, two receives", "a chain", "the other direction"],
)
def test_split_hops_share_a_frame_with_their_neighbour(hops: list[dict[str, Any]], split: int) -> None:
    assert summary_of([quality_of(table("hops", hops))], 0).total.split_count == split


def test_sums_over_all() -> None:
    counts = summary_of([quality_and_connections()[0]], 0).total
    assert some(counts) == {
        "hops_count": 9,
        "matched_count": 6,
        "lost_count": 1,
        "capture_dropped_count": 1,
        "outside_window_count": 1,
        "retransmitted_count": 1,
        "early_count": 2,
        "bytes": 1320,
        "matched_bytes": 1270,
    }
    assert counts.pairable_count == 7
    assert counts.failed_count == 3  # the one dropped, the two early
    assert (counts.matched_share, counts.bytes_share) == ("85.71 %", "96.21 %")


def test_pairs_of_hosts_are_reported_worst_first() -> None:
    pairs = summary_of([quality_and_connections()[0]], 0).host_pairs
    assert [(pair.send_host, pair.receive_host, pair.counts.failed_count) for pair in pairs] == [
        ("storage1", "proxy", 2),
        ("proxy", "client", 1),
        ("client", "proxy", 0),  # has a loss
        (None, "proxy", 0),
        ("proxy", "storage1", 0),
    ]
    assert pairs[1].connections_count == 2
    assert pairs[2].counts.lost_count == 1


def test_the_worst_connections_are_those_in_which_something_failed_or_was_lost() -> None:
    quality, connections = quality_and_connections()
    named = connections.select(CONNECTION_COLUMNS)
    summary = summary_of([quality], 10)
    worst = connections_of(summary.worst, [named])
    assert [connection.connection_id for connection in worst] == [3, 2]
    assert summary.imperfect_count == 2
    assert some(worst[1].counts)["hops_count"] == 3  # of both directions
    assert (worst[1].client_host, worst[1].client_port, worst[1].server_port) == ("client", 40001, 8080)
    fewer = summary_of([quality], 1)
    assert [connection.connection_id for connection in connections_of(fewer.worst, [named])] == [3]
    assert fewer.imperfect_count == 2


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_sums_are_the_same_however_the_table_is_cut(rows: int) -> None:
    quality, connections = quality_and_connections()
    named = connections.select(CONNECTION_COLUMNS)
    whole = summary_of([quality], 10)
    cut = summary_of([quality.slice(place, rows) for place in range(0, quality.num_rows, rows)], 10)
    assert (cut.total, cut.host_pairs, cut.imperfect_count) == (whole.total, whole.host_pairs, whole.imperfect_count)
    slabs = [named.slice(place, rows) for place in range(0, named.num_rows, rows)]
    assert connections_of(cut.worst, slabs) == connections_of(whole.worst, [named])


def test_nothing_adds_up_to_nothing() -> None:
    summary = summary_of([quality_of(table("hops", []))], 10)
    assert some(summary.total) == {}
    assert summary.host_pairs == ()
    assert summary.total.matched_share == "–"
    assert connections_of(summary.worst, []) == ()


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 0, "–"),
        (0, 5, "0 %"),
        (5, 5, "100 %"),
        (84_059_721, 84_059_722, "99.99 %"),  # never rounded up to all
        (1, 10**9, "0.00 %"),
        (1, 3, "33.33 %"),
    ],
)
def test_shares_are_rounded_down(part: int, whole: int, text: str) -> None:
    assert percent(part, whole) == text


def test_the_counts_of_a_trace_are_those_of_its_hops(tmp_path: Path) -> None:
    """Against a plain recount, on a capture with loss, drops, offload, clocks apart and many connections."""
    stations = [
        Station("client", "10.0.0.1"),
        Station("proxy", "10.0.0.2", Clock(3_000_000), capture_drop=0.02),
        Station("storage", "10.0.0.3", Clock(-9_000_000), behind_tap_loss=0.01),
    ]
    net = Network(stations, NetworkPath(loss=0.02), 5)
    for number in range(6):
        net.connect("client", "proxy", 40_000 + number, 500, 200_000, at_ns=number * 20_000_000)
        net.connect("proxy", "storage", 50_000 + number, 100_000, 500, at_ns=number * 20_000_000)
    net.run()
    analyse([HostSource(None, (file,)) for file in net.write(tmp_path)], str(tmp_path / "trace"))
    hops = Trace(str(tmp_path / "trace")).read("hops").to_pylist()
    pairs = summary_of([Trace(str(tmp_path / "trace")).read("quality")], 0).host_pairs
    states = Counter((row["send_host"], row["receive_host"], row["state"]) for row in hops)
    assert {state for *_, state in states} >= {"matched", "lost", "capture_dropped"}
    for pair in pairs:
        mine = [row for row in hops if (row["send_host"], row["receive_host"]) == (pair.send_host, pair.receive_host)]
        assert pair.counts.hops_count == len(mine)
        assert pair.counts.matched_count == states[pair.send_host, pair.receive_host, "matched"]
        assert pair.counts.lost_count == states[pair.send_host, pair.receive_host, "lost"]
        assert pair.counts.retransmitted_count == sum(row["attempt"] > 1 for row in mine)
        assert pair.counts.matched_bytes == sum(
            row["stream_end"] - row["stream_start"] for row in mine if row["state"] == "matched"
        )
        sharing = Counter((end, row[f"{end}_frame"]) for row in mine if row["kind"] == "data" for end in ENDS)
        assert pair.counts.split_count == sum(
            any(row[f"{end}_frame"] is not None and sharing[end, row[f"{end}_frame"]] > 1 for end in ENDS)
            for row in mine
            if row["state"] == "matched" and row["kind"] == "data"
        )
        assert pair.counts.early_count == sum((row["one_way_delay_ns"] or 0) < 0 for row in mine)
    assert sum(pair.counts.hops_count for pair in pairs) == len(hops)
    assert sum(pair.counts.split_count for pair in pairs) > 0


ENDS = ("send", "receive")
