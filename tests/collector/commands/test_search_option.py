"""`--search` of report, export and query: the requests that a search finds, and what stays that of the whole trace."""

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import twintap
from collector.commands import export, query, replay, report
from tests.helpers.script_traces import write_script_trace
from tracer.errors import InputError

CAPTURES = Path(__file__).resolve().parents[3] / "captures" / "bench-2-puts"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = str(tmp_path_factory.mktemp("search") / "trace")
    assert CliRunner().invoke(replay.command, ["--quiet", "-o", place, str(CAPTURES)]).exit_code == 0
    return place


def run(command: click.Command, *words: object) -> str:
    result = CliRunner().invoke(command, list(map(str, words)))
    if result.exception is not None:
        raise result.exception
    return result.output


def test_a_report_of_some_requests(trace: str) -> None:
    every, some = (json.loads(run(report.command, trace, "--json", *more)) for more in ((), ("--search", "PUT")))
    assert (every["requests"]["count"], some["requests"]["count"]) == (4, 3)
    slowest = [each for each in every["requests"]["slowest"] if each["name"].startswith("PUT")]
    assert some["requests"]["slowest"] == slowest
    assert some["hop_states"] == every["hop_states"]
    assert some["info"]["command"] is None  # the pauses between the chosen requests are not its own time
    assert sum(part["duration_ns"] for part in some["story"]["parts"]) == slowest[0]["duration_ns"]
    said = " ".join(run(report.command, trace, "--search", "PUT").split())
    assert said.startswith("3 requests took")
    assert "only requests that 'PUT' finds; packets, clocks and findings are those of the whole trace" in said


def test_a_failed_connection_belongs_to_the_request_that_waited_for_it(tmp_path: Path) -> None:
    """Of two requests that a proxy serves at once, the second's server is silent; the first's report says nothing of
    that."""
    write_script_trace(
        str(tmp_path / "t"),
        """
        client:40000 > proxy:8080
              0 > syn
             50 < syn_ack
            100 > 0:100 GET /first tx=t1
         900000 < 0:50 200
        client:40001 > proxy:8080
          10000 > syn
          10050 < syn_ack
          10100 > 0:100 GET /second tx=t2
         800000 < 0:50 200
        proxy:50000 > storage1:6200
          10200 > syn unseen
        proxy:50001 > storage2:6200
         510200 > syn
         510250 < syn_ack
         510300 > 0:100 GET /d2 tx=t2
         510400 < 0:50 200
        proxy:50002 > storage3:6200
         600200 > syn
         600250 < syn_ack
         600300 > 0:100 GET /d1 tx=t1
         600400 < 0:50 200
    """,
    )
    found = {}
    for name in ("first", "second"):
        said = json.loads(run(report.command, tmp_path / "t", "--json", "--search", f"path:/{name}"))
        found[name] = [str(part) for part in said["story"]["parts"]]
    assert any("storage1" in part or "connect" in part for part in found["second"])
    assert found["first"] != found["second"]
    assert not any("storage1" in part for part in found["first"])


def test_exports_of_some_requests(trace: str, tmp_path: Path) -> None:
    for search, count in (("path:/auth/v1.0", 1), ("PUT or GET", 4), ("not (PUT or GET)", 0)):
        arguments = (trace, "--to", "har", "--search", search, "-o", tmp_path / "x.har")
        if not count:
            with pytest.raises(InputError, match="no request is found"):
                run(export.command, *arguments)
            continue
        run(export.command, *arguments)
        assert len(json.loads((tmp_path / "x.har").read_text())["log"]["entries"]) == count
    with pytest.raises(InputError, match="--search and --request both choose requests"):
        run(export.command, trace, "--to", "har", "--search", "GET", "--request", "#1")


def test_a_query_over_some_requests_and_their_packets(trace: str) -> None:
    sql = "SELECT (SELECT count(*) FROM requests) AS r, (SELECT count(*) FROM packets) AS p"
    whole, some = (
        json.loads(run(query.command, trace, "--to", "json", *more, sql))[0]
        for more in ((), ("--search", "GET not /photos"))
    )
    exchanges = twintap.open(trace).requests(search="get")
    assert some["r"] == len(exchanges) < whole["r"]
    assert 0 < some["p"] < whole["p"]
    assert {row["root_id"] for row in exchanges} == {row["root_id"] for row in exchanges.where("parent_id IS NULL")}
    assert len(twintap.open(trace).requests("status = 201", search="put")) > 0
    with pytest.raises(twintap.Error, match="character 6"):
        twintap.open(trace).requests(search="get (")
