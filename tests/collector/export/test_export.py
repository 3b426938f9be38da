"""A trace in other tools' formats."""

import csv
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


def test_the_default_place_is_named_after_the_trace(
    trace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert export(f"{trace}/", "--to", "perfetto") == "wrote trace.pftrace\n"


def test_an_unknown_format_names_those_that_are_there(trace: str) -> None:
    with pytest.raises(InputError, match="cannot be written as pdf; formats: csv, parquet"):
        export(trace, "--to", "pdf")


def test_what_cannot_be_written_is_the_operators(trace: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ResourceError, match="cannot write it"):
        export(trace, "--to", "perfetto", "-o", str(tmp_path / "file" / "out.pftrace"))


def test_no_trace_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such trace"):
        export(str(tmp_path / "none"), "--to", "csv")
