"""A trace in other tools' formats."""

import csv
import json
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from collector.commands.export import command
from collector.trace.reading import Trace
from collector.trace.schema import TABLES
from tests.helpers.script_traces import write_script_trace
from tracer.errors import InputError, ResourceError

SCRIPT = """
    client:40000 > proxy:8080
      0 > 0:200 PUT /v1/a/c/o tx=tx1
      5000 < 0:100 201 tx=tx1
    client:40001 > proxy:8080
      1000 > 0:200 GET /v1/a/c/o tx=tx2
      4000 < 0:100 200 tx=tx2
    proxy:50000 > storage1:6200
      1500 > 0:200 PUT /d1/7/a/c/o tx=tx1 lost
      2000 > 0:200 #2 PUT /d1/7/a/c/o tx=tx1
      3000 < 0:100 201 tx=tx1
"""


@pytest.fixture
def trace(tmp_path: Path) -> str:
    write_script_trace(str(tmp_path / "trace"), SCRIPT)
    return str(tmp_path / "trace")


def export(*arguments: str) -> str:
    result = CliRunner().invoke(command, arguments)
    if result.exception is not None:
        raise result.exception
    return result.output


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_csv_holds_every_table(trace: str, tmp_path: Path) -> None:
    output = export(trace, "--to", "csv", "-o", str(tmp_path / "out"))
    assert output == f"{len(TABLES)} files in {tmp_path / 'out'}\n"
    for name, schema in TABLES.items():
        rows = rows_of(tmp_path / "out" / f"{name}.csv")
        table = Trace(trace).read(name)
        assert len(rows) == table.num_rows
        assert not rows or list(rows[0]) == schema.names
    exchanges = rows_of(tmp_path / "out" / "exchanges.csv")
    assert [row["transaction_id"] for row in exchanges] == ["tx1", "tx2", "tx1"]
    assert exchanges[0]["connect_start_trace_ns"] == ""


def perfetto(trace: str, tmp_path: Path) -> list[dict]:
    export(trace, "--to", "perfetto", "-o", str(tmp_path / "out.json"))
    return json.loads((tmp_path / "out.json").read_text())["traceEvents"]


def test_perfetto_slices_are_the_spans(trace: str, tmp_path: Path) -> None:
    events = perfetto(trace, tmp_path)
    hosts = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    slices = {event["args"]["exchange_id"]: event for event in events if event["ph"] == "X"}
    assert list(hosts.values()) == ["client", "proxy", "storage1"]
    assert {number: (hosts[e["pid"]], e["name"], e["ts"], e["dur"]) for number, e in slices.items()} == {
        1: ("proxy", "PUT /v1/a/c/o", 0, 5020),
        2: ("proxy", "GET /v1/a/c/o", 1000, 3020),
        3: ("storage1", "PUT /d1/7/a/c/o", 1500, 1520),
    }
    assert slices[3]["args"]["parent_span_id"] == 1
    assert slices[3]["args"]["link_reason"] == "transaction_id"


def test_perfetto_slices_of_a_track_do_not_overlap(trace: str, tmp_path: Path) -> None:
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in perfetto(trace, tmp_path):
        if event["ph"] == "X":
            tracks.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    assert len(tracks) == 3
    for spans in tracks.values():
        ordered = sorted(spans)
        assert all(before[1] <= after[0] for before, after in pairwise(ordered))


def test_perfetto_arrows_join_parent_and_child(trace: str, tmp_path: Path) -> None:
    events = perfetto(trace, tmp_path)
    slices = {event["args"]["exchange_id"]: event for event in events if event["ph"] == "X"}
    start, end = ([event for event in events if event["ph"] == phase] for phase in "sf")
    assert [event["id"] for event in start] == [event["id"] for event in end] == [3]
    assert (start[0]["pid"], start[0]["tid"]) == (slices[1]["pid"], slices[1]["tid"])
    assert (end[0]["pid"], end[0]["tid"], end[0]["bp"]) == (slices[3]["pid"], slices[3]["tid"], "e")
    assert start[0]["ts"] <= end[0]["ts"] == slices[3]["ts"]


def test_perfetto_findings_are_instants(trace: str, tmp_path: Path) -> None:
    instants = [event for event in perfetto(trace, tmp_path) if event["ph"] == "i"]
    exported = [(event["name"], event["ts"], event["s"]) for event in instants]
    assert exported == [("packet_loss", 1500, "p"), ("tail_loss", 1500, "p")]


def test_an_empty_trace_is_exported(tmp_path: Path) -> None:
    write_script_trace(str(tmp_path / "trace"), "")
    assert perfetto(str(tmp_path / "trace"), tmp_path) == []


def test_the_default_place_is_named_after_the_trace(
    trace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert export(f"{trace}/", "--to", "perfetto") == "wrote trace.perfetto.json\n"


def test_an_unknown_format_names_those_that_are_there(trace: str) -> None:
    with pytest.raises(InputError, match="cannot be written as pdf; formats: csv, parquet"):
        export(trace, "--to", "pdf")


def test_what_cannot_be_written_is_the_operators(trace: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ResourceError, match="cannot write it"):
        export(trace, "--to", "perfetto", "-o", str(tmp_path / "file" / "out.json"))


def test_no_trace_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such trace"):
        export(str(tmp_path / "none"), "--to", "csv")
