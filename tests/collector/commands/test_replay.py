"""`tracer replay`, from the command line to the printed report."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from collector.commands import report
from collector.commands.replay import command
from collector.trace.reading import Trace
from tracer.errors import InputError

CAPTURES = Path(__file__).resolve().parents[3] / "captures" / "swift-upload-1B"


def test_a_folder_of_captures_becomes_a_trace_and_a_report(tmp_path: Path) -> None:
    trace = str(tmp_path / "trace")
    result = CliRunner().invoke(command, ["-o", trace, str(CAPTURES)])
    assert result.exit_code == 0
    assert result.stdout.startswith("`swift upload ")
    assert result.output.endswith(f"trace: {trace}\n")
    assert [host.host for host in Trace(trace).info().hosts] == [
        "client",
        "proxy",
        "storage1",
        "storage2",
        "storage3",
    ]


def test_a_short_capture_waits_for_no_library_that_only_others_need(tmp_path: Path) -> None:
    program = (
        "import sys; from collector.commands.replay import command; command(sys.argv[1:], standalone_mode=False); "
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    argv = [sys.executable, "-c", program, "-o", str(tmp_path / "trace"), str(CAPTURES)]
    loaded = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()[-1].split()
    assert "polars" in loaded
    others = {"scipy", "networkx", "pandas", "fastapi", "uvicorn", "dash", "plotly", "duckdb", "fsspec", "asyncio"}
    assert others.isdisjoint(loaded)


def test_clocks_are_left_alone_if_asked(tmp_path: Path) -> None:
    trace = str(tmp_path / "trace")
    CliRunner().invoke(command, ["-o", trace, "--no-align", str(CAPTURES)])
    assert set(Trace(trace).read("clocks")["method"].to_pylist()) == {"raw"}


def test_hosts_are_named_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(CAPTURES / "client.pcapng", tmp_path / "a.pcapng")
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(command, ["one=a.pcapng", f"two={CAPTURES / 'proxy.pcapng'}"])
    assert result.exit_code == 0
    trace = result.output.rsplit("trace: ", 1)[1].strip()
    assert trace.startswith("traces/")
    assert [host.host for host in Trace(trace).info().hosts] == ["one", "two"]


def test_names_are_printed_as_they_are(tmp_path: Path) -> None:
    names = ("[red]b", "[fd00::1]", ":warning:")
    hosts = [
        f"{name}={CAPTURES / file}.pcapng" for name, file in zip(names, ("client", "proxy", "storage1"), strict=True)
    ]
    result = CliRunner().invoke(command, ["-o", str(tmp_path / "trace"), *hosts])
    assert result.exit_code == 0, result.exception
    words = result.stdout.split()
    assert all(name in words for name in names)


def test_a_capture_that_is_none_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_text("not a capture")
    result = CliRunner().invoke(command, ["-o", str(tmp_path / "trace"), str(tmp_path / "a.pcap")])
    assert isinstance(result.exception, InputError)
    assert [path.name for path in tmp_path.iterdir()] == ["a.pcap"]


def test_what_the_hosts_used_is_replayed_too(tmp_path: Path) -> None:
    shutil.copytree(CAPTURES, tmp_path / "captures", ignore=shutil.ignore_patterns("expected"))
    samples = tmp_path / "captures" / "samples.csv"
    samples.write_text("host,host_ns,metric,value\nproxy,5,cpu_percent,12.5\n")
    result = CliRunner().invoke(command, ["-o", str(tmp_path / "trace"), str(tmp_path / "captures")])
    assert result.exit_code == 0
    (row,) = Trace(str(tmp_path / "trace")).read("samples").to_pylist()
    assert row == {"host": "proxy", "host_ns": 5, "metric": "cpu_percent", "value": 12.5}
    for damage in ("host,host_ns,metric,value\nproxy,soon,cpu_percent,1\n", "host,value\nproxy,1\n", ""):
        samples.write_text(damage)
        result = CliRunner().invoke(command, ["-o", str(tmp_path / "other"), str(tmp_path / "captures")])
        assert isinstance(result.exception, InputError)
        assert "samples.csv is damaged" in str(result.exception)


def test_two_traces_of_few_requests_are_compared_without_a_verdict(tmp_path: Path) -> None:
    traces = [str(tmp_path / name) for name in ("one", "two")]
    for trace in traces:
        assert CliRunner().invoke(command, ["--quiet", "-o", trace, str(CAPTURES)]).exit_code == 0
    said = CliRunner().invoke(report.command, [traces[0], "--compare", traces[1]])
    assert said.exit_code == 0, said.output
    compared = said.stdout.partition("\nCompared")[2]
    assert "1 → 1 requests" in compared
    assert "too few to say whether that is more than noise: 5 of each are needed" in compared
    assert "no kind of request" not in compared
