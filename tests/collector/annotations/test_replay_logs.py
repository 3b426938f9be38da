"""`tracer replay --logs`: from lines to rows of a trace that name their requests, and to a copy that names nothing."""

from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

from collector.analysis import AnalysisOptions, analyse
from collector.analysis.period import options_of_period
from collector.annotations.log_options import LogOptions
from collector.commands.replay import command as replay
from collector.decode.sources import host_sources
from collector.scrub.scrubbing import scrub
from collector.trace.reading import Trace

SECOND = 10**9
CAPTURE = Path(__file__).parents[3] / "captures" / "swift-upload-1B"


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pl.DataFrame]:
    """The bundled capture, replayed without logs, and its requests at the proxy."""
    trace = tmp_path_factory.mktemp("plain") / "trace"
    assert CliRunner().invoke(replay, [str(CAPTURE), "-o", str(trace), "--quiet"]).exit_code == 0
    frame = pl.DataFrame(Trace(str(trace)).read("exchanges")).cast({pl.Categorical: pl.String})
    return trace, frame.filter(pl.col("server_host") == "proxy")


def combined_line(row: dict[str, object]) -> str:
    at = pl.Series([row["response_last_sent_trace_ns"]]).cast(pl.Datetime("ns")).dt.strftime("%d/%b/%Y:%H:%M:%S")[0]
    return f'10.0.0.1 - - [{at} +0000] "{row["method"]} {row["target"]} HTTP/1.1" {row["status"]} 0 "-" "alice-agent"\n'


def test_lines_are_placed_joined_and_left_out_of_a_scrubbed_copy(
    proxy: tuple[Path, pl.DataFrame], tmp_path: Path
) -> None:
    rows = proxy[1].to_dicts()
    lines = [combined_line(row) for row in rows]
    (tmp_path / "proxy.log").write_text(
        "".join(line.replace("10.0.0.1", address(proxy[0])) for line in lines) + "alice\n"
    )
    trace = tmp_path / "trace"
    done = CliRunner().invoke(
        replay, [str(CAPTURE), "-o", str(trace), "--quiet", "--logs", str(tmp_path / "proxy.log")]
    )
    assert done.exit_code == 0, done.output
    table = pl.DataFrame(Trace(str(trace)).read("annotations")).cast({pl.Categorical: pl.String})
    assert len(table) == len(rows) > 0
    ids = dict(zip(proxy[1]["exchange_id"], proxy[1]["target"], strict=True))
    for row in table.filter(pl.col("joined_by").is_not_null()).to_dicts():
        assert f" {ids[row['exchange_id']]} HTTP" in row["text"]
    assert table["joined_by"].is_not_null().any()
    scrub(Trace(str(trace)), str(tmp_path / "copy"))
    copied = pl.DataFrame(Trace(str(tmp_path / "copy")).read("annotations")).cast({pl.Categorical: pl.String})
    assert set(copied["text"]) | set(copied["name"]) | set(copied["source"]) == {""}
    assert copied["exchange_id"].equals(table["exchange_id"])
    raw = b"".join(path.read_bytes() for path in (tmp_path / "copy").rglob("*") if path.is_file())
    assert b"alice" not in raw


def address(trace: Path) -> str:
    """The client's."""
    return next(host.addresses[0] for host in Trace(str(trace)).info().hosts if host.host == "client")


def test_a_log_of_no_captured_host_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "access.log").write_text("x\n")
    done = CliRunner().invoke(
        replay, [str(CAPTURE), "-o", str(tmp_path / "t"), "--quiet", "--logs", str(tmp_path / "access.log")]
    )
    assert done.exit_code != 0
    assert "give it as HOST=FILE" in str(done.exception) + done.output
    assert not (tmp_path / "t").exists()


def test_a_series_has_the_lines_of_each_period_numbered_anew(proxy: tuple[Path, pl.DataFrame], tmp_path: Path) -> None:
    lines = [combined_line(row) for row in proxy[1].to_dicts()]
    (tmp_path / "proxy.log").write_text("".join(lines))
    given = [
        str(CAPTURE),
        "-o",
        str(tmp_path / "series"),
        "--quiet",
        "--every",
        "1h",
        "--logs",
        str(tmp_path / "proxy.log"),
    ]
    assert CliRunner().invoke(replay, given).exit_code == 0
    [trace] = [path.parent for path in (tmp_path / "series").rglob("annotations.parquet")]
    found = Trace(str(trace)).read("annotations")["annotation_id"].to_pylist()
    assert found == list(range(len(lines)))


@pytest.mark.parametrize(("length_s", "expected"), [(10, 1), (60, 2)])
def test_a_period_has_only_its_own_lines(
    length_s: int, expected: int, proxy: tuple[Path, pl.DataFrame], tmp_path: Path
) -> None:
    row = proxy[1].sort("response_last_sent_trace_ns").row(0, named=True)
    at_ns = row["response_last_sent_trace_ns"]
    later = row | {"response_last_sent_trace_ns": at_ns + 30 * SECOND}
    (tmp_path / "proxy.log").write_text(combined_line(later) + combined_line(row))
    options = AnalysisOptions(logs=LogOptions((str(tmp_path / "proxy.log"),)))
    period = at_ns - 5 * SECOND, at_ns + length_s * SECOND
    analyse(host_sources([str(CAPTURE)]), str(tmp_path / "t"), options=options_of_period(options, period))
    found = Trace(str(tmp_path / "t")).read("annotations")
    assert found["annotation_id"].to_pylist() == list(range(expected))


def test_without_logs_there_are_no_annotations(proxy: tuple[Path, pl.DataFrame]) -> None:
    assert Trace(str(proxy[0])).rows_count("annotations") == 0
