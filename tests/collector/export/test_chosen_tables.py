"""The tables, and the packets, of the requests that a search finds."""

from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

from collector.analysis import analyse
from collector.capture_files.readers import open_capture
from collector.commands.export import command
from collector.decode.sources import host_sources
from collector.queries.trace_view import TraceView, open_trace
from collector.trace.reading import Trace
from collector.trace.schema import TABLES
from tests.helpers.script_traces import write_script_trace
from tracer.errors import InputError

BUNDLED = Path(__file__).resolve().parents[3] / "captures" / "bench-2-puts"
SEARCH = "path:object-000001"
WHOLE = ("clocks", "findings", "samples")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = str(tmp_path_factory.mktemp("traces") / "bench")
    analyse(host_sources([str(BUNDLED)]), place)
    return place


def export(*arguments: object) -> str:
    result = CliRunner().invoke(command, list(map(str, arguments)))
    if result.exception is not None:
        raise result.exception
    return result.output


def table_of(trace: str, name: str) -> pl.DataFrame:
    return pl.DataFrame(Trace(trace).read(name)).cast({pl.Categorical: pl.String}).select(TABLES[name].names)


def frames(folder: Path) -> dict[str, pl.DataFrame]:
    return {path.stem: pl.read_parquet(path) for path in folder.iterdir()}


def page_rows(view: TraceView, number: int) -> list[int]:
    """The rows of `hops` that the page shows of a request alone."""
    return view.only(pl.Series([number]).to_numpy()).rows_between(0, view.duration_ns + 1).tolist()


def test_rows_are_those_of_the_requests_that_are_found(trace: str, tmp_path: Path) -> None:
    export(trace, "--to", "parquet", "--search", SEARCH, "-o", tmp_path / "out")
    found, view = frames(tmp_path / "out"), open_trace(trace)
    (root,) = found["spans"].filter(pl.col("parent_span_id").is_null())["span_id"]
    every = {name: table_of(trace, name) for name in TABLES}
    assert "object-000001" in every["exchanges"].filter(pl.col("exchange_id") == root)["target"].item()
    spans = every["spans"].filter(pl.col("trace_id") == root)
    assert 0 < len(spans) < len(every["spans"])
    assert found["spans"].equals(spans)
    number = next(n for n in range(4) if view.trace_ids(pl.Series([n]).to_numpy()).item() == root)
    assert found["hops"].equals(every["hops"][page_rows(view, number)])
    exchanges = every["exchanges"].filter(pl.col("exchange_id").is_in(spans["span_id"].implode()))
    assert found["exchanges"].equals(exchanges)
    for name in ("connections", "quality", "messages"):
        of_these = pl.col("connection_id").is_in(exchanges["connection_id"].implode())
        assert 0 < len(found[name]) < len(every[name])
        assert found[name].equals(every[name].filter(of_these))
    for name in WHOLE:
        assert found[name].equals(every[name])


def test_events_are_both_ends_of_the_packets(trace: str, tmp_path: Path) -> None:
    export(trace, "--to", "parquet", "--search", SEARCH, "-o", tmp_path / "out")
    found = frames(tmp_path / "out")
    hops = found["hops"]
    ends = {(row[f"{end}_host"], row[f"{end}_frame"]) for row in hops.to_dicts() for end in ("send", "receive")}
    assert sorted(found["events"].select("host", "frame").rows()) == sorted(ends)


def test_csv_has_the_same_rows(trace: str, tmp_path: Path) -> None:
    for form in ("csv", "parquet"):
        assert export(trace, "--to", form, "--search", SEARCH, "-o", tmp_path / form).startswith(f"{len(TABLES)} files")
    for name, frame in frames(tmp_path / "parquet").items():
        lines = (tmp_path / "csv" / f"{name}.csv").read_text().splitlines()
        assert lines[0].replace('"', "").split(",") == frame.columns
        assert len(lines) == 1 + len(frame)


def test_one_request_alone(trace: str, tmp_path: Path) -> None:
    export(trace, "--to", "parquet", "--request", "#1", "-o", tmp_path / "out")
    assert frames(tmp_path / "out")["spans"]["trace_id"].unique().to_list() == [1]


def test_a_stream_is_of_no_request(tmp_path: Path) -> None:
    write_script_trace(str(tmp_path / "trace"), "client:1 > proxy:8080\n0 > 0:10 GET /a\n100 < 0:10 200")
    export(tmp_path / "trace", "--to", "parquet", "--search", "GET", "-o", tmp_path / "out")
    assert len(frames(tmp_path / "out")["streams"]) == 0


def packets_of(file: Path) -> int:
    with open_capture(file) as reader:
        return sum(len(batch.events["frame"]) for batch in reader.batches())


def test_packets_of_what_is_found_also_within_a_time(trace: str, tmp_path: Path) -> None:
    sizes = {}
    for name, more in {
        "found": ("--search", SEARCH),
        "request": ("--request", "#4"),
        "within": ("--search", SEARCH, "--from", "0.13", "--until", "0.15"),
    }.items():
        export(trace, "--to", "pcapng", *more, "-o", tmp_path / name)
        sizes[name] = packets_of(tmp_path / name)
    assert sizes["found"] == sizes["request"] > sizes["within"] > 0


def test_requests_that_last_within_a_time(trace: str, tmp_path: Path) -> None:
    view = open_trace(trace)
    first, second = (view.request(number) for number in range(2))
    middle_s = f"{(first.end_ns + second.start_ns) / 2e9:.9f}"
    numbers = {}
    for name, more in {"before": ("--until", middle_s), "after": ("--from", middle_s, "--search", "PUT")}.items():
        export(trace, "--to", "parquet", *more, "-o", tmp_path / name)
        numbers[name] = frames(tmp_path / name)["spans"]["trace_id"].unique().to_list()
    every = view.trace_ids(pl.Series(range(4)).to_numpy()).tolist()
    assert (numbers["before"], sorted(numbers["after"])) == (every[:1], every[1:])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["har", "--request", "#1", "--from", "0"], "--from and --until choose packets or requests"),
        (["workload", "--until", "1"], "--from and --until choose packets or requests"),
        (["csv", "--search", "nowhere"], "no request is found by 'nowhere'"),
        (["pcapng", "--search", "nowhere"], "no request is found by 'nowhere'"),
        (["parquet", "--search", "PUT (", "-o", "x"], "search 'PUT \\('"),
        (["pcapng", "--search", "PUT", "--request", "#1"], "both choose requests"),
        (["workload", "--search", "PUT"], "workload holds a whole trace"),
    ],
)
def test_what_cannot_be_chosen(arguments: list[str], words: str, trace: str) -> None:
    with pytest.raises(InputError, match=words):
        export(trace, "--to", *arguments)
