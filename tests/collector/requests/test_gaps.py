"""Holes of captures: a connection is cut there, and nothing is inferred from what is missing."""

import random
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import polars as pl
import pyarrow as pa
import pytest

from collector.analysis import analyse
from collector.analysis.rebuild_stage import exchanges_of_partition
from collector.decode.sources import host_sources
from collector.findings.capture_gaps import Holes, Missed
from collector.findings.captures import capture_findings
from collector.findings.symptoms import Symptoms
from collector.findings.thresholds import DEFAULTS
from collector.queries import open_trace
from collector.reporting.report import build_report
from collector.requests.gaps import Pieces, doubt_losses, find_gaps, gapped_flows
from collector.trace.reading import Trace
from collector.trace.schema import conform
from testkit.netsim import Network, NetworkPath, Station
from testkit.tables import BASE_NS, by_flow
from tests.helpers.scripts import play
from tests.helpers.service_ports import names_of_ports

NAMES = names_of_ports({8080: "web"})
RECORD = struct.Struct("<IIII")
SECOND = 1_000_000_000

HEAD = """
    client:40000 > web:8080
        0 > syn
       50 < syn_ack
      100 > 0:100 GET /a
      900 < 0:80 200 body=0
"""
REQUESTS = """
     1000 > 100:200 GET /b
     1900 < 80:160 200 body=0
     2000 > 200:300 GET /c
     2900 < 160:240 200 body=0
     3000 > 300:400 GET /d
     3900 < 240:320 200 body=0
"""


def lines(text: str, *left_out: str) -> str:
    """A script without the transfers that begin so."""
    return "\n".join(
        line for line in text.splitlines() if not any(line.split()[1:3] == out.split() for out in left_out)
    )


def exchanges(script: str) -> pl.DataFrame:
    played = play(script)
    hops = by_flow(played.hops)
    rows = gapped_flows(hops)
    holed = Pieces(find_gaps(hops, rows, played.messages)) if len(rows) else None
    built = exchanges_of_partition(hops, played.messages, played.connections, NAMES, 1, None, holed)
    assert built.hops["connection_id"].to_pylist() == hops["connection_id"].to_pylist()
    return pl.DataFrame(built.exchanges).with_columns(pl.col(pl.Categorical).cast(pl.String))


def targets_and_answer_times(script: str) -> list[tuple[str | None, int | None]]:
    """Each request's target, and when its answer was sent (µs)."""
    found = exchanges(script)
    assert found["connection_id"].unique().to_list() == [1]
    at = (found["response_first_sent_trace_ns"] - BASE_NS) // 1000
    return list(zip(found["target"].to_list(), at.to_list(), strict=True))


@pytest.mark.parametrize(
    ("left_out", "expected"),
    [
        ([], [("/a", 900), ("/b", 1900), ("/c", 2900), ("/d", 3900)]),
        (["< 80:160"], [("/a", 900), ("/b", None), ("/c", 2900), ("/d", 3900)]),
        (["> 100:200"], [("/a", 900), (None, 1900), ("/c", 2900), ("/d", 3900)]),
        (["> 100:200", "< 80:160"], [("/a", 900), ("/c", 2900), ("/d", 3900)]),
        (["< 240:320"], [("/a", 900), ("/b", 1900), ("/c", 2900), ("/d", None)]),
    ],
    ids=["nothing", "an answer", "a request", "both", "the last answer"],
)
def test_what_is_missing_is_not_mistaken_for_the_next(left_out: list[str], expected: list) -> None:
    assert targets_and_answer_times(HEAD + lines(REQUESTS, *left_out)) == expected


def test_an_answer_that_may_go_on_in_a_hole_is_not_known() -> None:
    script = (
        HEAD
        + """
     1000 > 100:200 GET /b
     1900 < 80:160 200
     2000 > 200:300 GET /c
     2900 < 260:340 200 body=0
"""
    )
    assert targets_and_answer_times(script) == [("/a", 900), ("/b", None), ("/c", 2900)]
    assert exchanges(script).filter(pl.col("target") == "/b")["complete"].to_list() == [False]


def write_captures(folder: Path, loss: float, **station: float) -> list[Path]:
    """Captures of a client and a server."""
    stations = [Station("client", "10.0.0.1", **station), Station("server", "10.0.0.2", **station)]  # type: ignore[arg-type]
    net = Network(stations, NetworkPath(loss=loss, reorder=0.01), 5)
    for number in range(30):
        net.connect("client", "server", 40_000 + number, 20_000, 60_000, at_ns=number * SECOND // 10)
    net.run()
    folder.mkdir()
    return net.write(folder)


def thin_out(path: Path, keeps: float) -> Path:
    """The capture without some of its packets, in place."""
    body, at, kept, drawn = path.read_bytes(), 24, b"", random.Random(2)
    while at < len(body):
        end = at + RECORD.size + RECORD.unpack_from(body, at)[2]
        kept += body[at:end] if drawn.random() < keeps else b""
        at = end
    path.write_bytes(body[:24] + kept)
    return path


def findings_and_exchanges(folder: Path, *paths: Path) -> tuple[list[dict], pl.DataFrame]:
    url = str(folder / "trace")
    analyse(host_sources([str(path) for path in paths]), url)
    return Trace(url).read("findings").to_pylist(), pl.DataFrame(Trace(url).read("exchanges"))


@pytest.mark.parametrize("one_sided", [True, False])
@pytest.mark.parametrize("loss", [0.0, 0.05])
def test_what_the_network_lost_is_no_hole(tmp_path: Path, loss: float, one_sided: bool) -> None:
    paths = write_captures(tmp_path / "net", loss)
    findings, requests = findings_and_exchanges(tmp_path, *paths[one_sided:])
    assert "capture_drop" not in {row["kind"] for row in findings}
    assert requests["complete"].all()


@pytest.mark.parametrize("hosts", [["server"], ["client", "server"]])
def test_holes_are_said_once_and_nothing_is_inferred_from_them(tmp_path: Path, hosts: list[str]) -> None:
    paths = [thin_out(path, 0.9) for path in write_captures(tmp_path / "net", 0.0) if path.stem in hosts]
    findings, _ = findings_and_exchanges(tmp_path, *paths)
    said = [row["text"] for row in findings if "continued behind holes" in row["text"]]
    assert len(said) == len(hosts)
    assert all("no silence, loss or missing answer is inferred there" in text for text in said)
    assert not [row for row in findings if row["kind"] != "capture_drop" and row["severity"] == "warning"]


def test_the_report_counts_the_requests_that_the_viewer_lists(tmp_path: Path) -> None:
    findings_and_exchanges(tmp_path, *(thin_out(path, 0.7) for path in write_captures(tmp_path / "net", 0.0)))
    url = str(tmp_path / "trace")
    counted = build_report(url).requests
    assert counted.count == open_trace(url).summary.requests_count
    assert counted.count < counted.exchanges_count  # of some no moment is known


def test_one_hole_of_two_captures_is_said_of_both_in_the_order_of_their_names() -> None:
    hole = Holes(connections=1, gaps=1, bytes=9, worst=3, at_ns=5)
    troubles = SimpleNamespace(missed=pl.DataFrame({"host": [], "count": []}))
    for hosts in (["a", "b", "c"], ["c", "b", "a"]):
        missed = {host: Missed(1, 100, None if host == "b" else hole) for host in hosts}
        findings = [*capture_findings(cast("Symptoms", troubles), missed, DEFAULTS.severity)]
        assert [(each.host, each.text.split(" missed")[0].split(" dropped")[0]) for each in findings] == [
            ("a", "the captures on a and c"),
            ("b", "the capture on b"),
        ]


def test_a_lone_acknowledgement_is_not_lost_where_the_other_capture_misses_packets() -> None:
    script = "client:1 > web:80\n 0 > 0:100 GET /a\n 50 < ack lost\n 60 < ack lost\n"
    hops = by_flow(play(script).hops)
    assert doubt_losses(hops).equals(hops)
    states = pl.DataFrame(hops)["state"].cast(pl.String)
    more = [play(script + " 100 < 0:10 200 unseen\n" * count).hops for count in (1, 3)]
    for table, expected in zip(more, ("lost", "unmatched"), strict=True):
        rows = pl.DataFrame(doubt_losses(by_flow(_with_missed_data(table)))).with_columns(
            pl.col(pl.Categorical).cast(pl.String)
        )
        assert rows.filter(pl.col("kind") == "ack")["state"].to_list() == [expected] * 2
    assert "lost" in states.to_list()


def _with_missed_data(hops: pa.Table) -> pa.Table:
    """Data that was not seen to arrive is what a capture missed."""
    rows = pl.DataFrame(hops).with_columns(pl.col(pl.Categorical).cast(pl.String))
    unseen = (pl.col("kind") == "data") & pl.col("receive_frame").is_null()
    return conform(
        "hops", rows.with_columns(state=pl.when(unseen).then(pl.lit("capture_dropped")).otherwise("state")).to_arrow()
    )
