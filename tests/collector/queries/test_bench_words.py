"""What a report says of a run of a load generator that is laid beside its trace."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from collector.commands.report import command
from collector.queries import TraceView, open_trace
from collector.queries.bench_words import load_line
from testkit.synthetic_trace import Recipe, write_synthetic_trace
from tests.helpers.bench_folders import write_run, write_warp_run
from tracer.errors import InputError


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> TraceView:
    """Twelve uploads, one after the other."""
    folder = tmp_path_factory.mktemp("traces") / "uploads"
    write_synthetic_trace(folder, Recipe(12, target="/v1/a/c/o"))
    return open_trace(str(folder))


def test_a_run_of_warp_is_joined_by_what_its_operations_are(trace: TraceView, tmp_path: Path) -> None:
    times = trace.load.table.select("start_ns", "end_ns").rows()
    folder = write_warp_run(tmp_path / "warp", trace.start_ns, times[:3])
    figures, found, *others = load_line(trace, folder).sentences
    assert figures.startswith("mixed: 4 operations, 4 at once, ")
    assert "; 1 failed, retries not recorded; p50 " in figures
    assert found.startswith("3 of 4 operations are joined with their request")
    assert others[0] == "Without a request in the trace: 1."


def test_a_run_of_ours_is_joined_by_ids(trace: TraceView, tmp_path: Path) -> None:
    ids = [trace.spans(number)[0].transaction_id for number in range(trace.summary.roots_count)]
    write_run(tmp_path / "run", 8, [*ids, "elsewhere"])
    figures, found = load_line(trace, tmp_path / "run").sentences
    assert "0 failed, 1 retries; p50 " in figures
    assert found == "13 of 14 attempts have their request in the trace, by its transaction id."


def test_what_is_no_run_is_refused(trace: TraceView, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no run that has ended"):
        load_line(trace, tmp_path)


def test_the_report_shows_runs_as_text_page_and_json(trace: TraceView, tmp_path: Path) -> None:
    times = trace.load.table.select("start_ns", "end_ns").rows()
    folder = write_warp_run(tmp_path / "<warp>", trace.start_ns, times[:3])
    page = tmp_path / "report.html"
    done = CliRunner().invoke(command, [trace.url, "--bench", str(folder), "--html", str(page)])
    assert done.exit_code == 0, done.output
    assert "Load  <warp>\n  mixed: 4 operations" in done.output
    assert "<h2>Load: &lt;warp&gt;</h2><p>" in page.read_text().replace("\n", "")
    document = json.loads(CliRunner().invoke(command, [trace.url, "--bench", str(folder), "--json"]).output)
    assert document["load"][0]["name"] == "<warp>"
    assert json.loads(CliRunner().invoke(command, [trace.url, "--json"]).output)["load"] == []
