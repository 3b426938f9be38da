"""`tracer query`: what it prints, what it writes, and what it says of what it cannot do."""

import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from collector.sql.views import VIEWS
from tests.helpers.command_line import run_here
from tests.helpers.script_traces import write_script_trace

SCRIPT = """
    client:40000 > proxy:8080
          0 > syn
         50 < syn_ack
        100 > 0:100 GET /a
        300 < 0:50 200
"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("query") / "trace"
    write_script_trace(str(place), SCRIPT)
    return place


def surroundings(config: Path | None = None) -> dict[str, str]:
    """The environment: without saved queries, unless a folder for them is given."""
    return {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "XDG_CONFIG_HOME": str(config or "/nonexistent")}


def query(*arguments: object, given: str = "", config: Path | None = None) -> subprocess.CompletedProcess[str]:
    return run_here("query", *arguments, given=given, environment=surroundings(config))


def query_of_its_own(*arguments: object, given: str = "") -> subprocess.CompletedProcess[str]:
    """By a process, as a user asks."""
    command = [sys.executable, "-m", "tracer", "query", *map(str, arguments)]
    return subprocess.run(command, input=given, capture_output=True, text=True, env=surroundings(), check=False)


def test_a_table_in_a_pipe_is_plain_and_whole(trace: Path) -> None:
    done = query_of_its_own(trace, "SELECT method, target, status FROM requests")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["method", "target", "status", "GET", "/a", "200"]


def test_words_need_no_quotes_and_come_from_standard_input_too(trace: Path) -> None:
    assert query(trace, *["SELECT", "method", "FROM", "requests"]).stdout.split() == ["method", "GET"]
    assert query_of_its_own(trace, "-", given="SELECT method FROM requests").stdout.split() == ["method", "GET"]


def test_formats(trace: Path, tmp_path: Path) -> None:
    sql = "SELECT method, status FROM requests"
    assert query(trace, sql, "--to", "csv").stdout == '"method","status"\n"GET",200\n'
    assert json.loads(query(trace, sql, "--to", "json").stdout) == [{"method": "GET", "status": 200}]
    for name in ("rows.csv", "rows.json", "rows.parquet"):
        assert query(trace, sql, "-o", tmp_path / name).stdout == f"wrote {tmp_path / name}\n"
    readers = (pl.read_csv, pl.read_json, pl.read_parquet)
    for read, name in zip(readers, ("rows.csv", "rows.json", "rows.parquet"), strict=True):
        assert read(tmp_path / name).rows() == [("GET", 200)]


def test_the_tables_and_their_columns(trace: Path) -> None:
    done = query(trace)
    assert done.returncode == 0
    for view in VIEWS:
        assert f"\n{view.name}  each row is {view.meaning}" in done.stdout
    assert "@slowest" in done.stdout
    one = query(trace, ".schema", "clocks").stdout
    assert "ahead_us" in one
    assert "delay_us" not in one
    assert all(len(line) <= 100 for line in done.stdout.splitlines())


def test_a_query_is_saved(trace: Path, tmp_path: Path) -> None:
    sql = "SELECT count(*) AS n FROM requests"
    assert "saved as @mine" in query(trace, sql, "--save", "mine", config=tmp_path).stderr
    assert query(trace, "@mine", config=tmp_path).stdout.split() == ["n", "1"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["SELECT nope FROM requests"], "nope"),
        (["DROP VIEW requests"], "read only"),
        ([".schema", "nope"], "there is no table nope"),
        (["@nope"], "no saved query nope"),
        (["FROM hosts", "--to", "parquet"], "Parquet is no text"),
        (["FROM hosts", "--to", "table", "-o", "x"], "a table is for the screen"),
        (["FROM hosts", "--to", "csv", "-o", "/nonexistent/x"], "cannot write it"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(arguments: list[str], words: str, trace: Path) -> None:
    done = query(trace, *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
