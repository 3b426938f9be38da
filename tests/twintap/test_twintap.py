"""The library: rows against the stored tables, what is read when, and each example of its page."""

import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import twintap
from collector.analysis import analyse
from collector.decode.sources import host_sources
from collector.sql.views import VIEWS
from collector.trace.reading import Trace as StoredTrace

ROOT = Path(__file__).resolve().parents[2]
WITH_METHOD = [view for view in VIEWS if hasattr(twintap.Trace, view.name)]
PAGE = ROOT / "docs" / "python.md"


@pytest.fixture(scope="module")
def url(tmp_path_factory) -> str:
    place = str(tmp_path_factory.mktemp("library") / "trace")
    analyse(host_sources([str(ROOT / "captures" / "bench-2-puts")]), place)
    return place


@pytest.fixture(scope="module")
def trace(url: str) -> twintap.Trace:
    return twintap.open(url)


def test_rows_are_those_of_the_trace(trace: twintap.Trace, url: str) -> None:
    stored = pl.DataFrame(StoredTrace(url).read("exchanges")).sort("exchange_id")
    found = trace.requests().sort("id").to_polars()
    assert found["id"].to_list() == stored["exchange_id"].to_list()
    assert found["target"].to_list() == stored["target"].to_list()
    assert len(trace.packets()) == StoredTrace(url).rows_count("hops") == 375


def test_rows_are_narrowed(trace: twintap.Trace) -> None:
    puts = (
        trace.requests("method = 'PUT'")
        .where("parent_id IS NULL")
        .columns("id", "duration_ms")
        .sort("duration_ms DESC")
    )
    every = trace.requests().to_polars().filter(pl.col("method") == "PUT", pl.col("parent_id").is_null())
    expected = every.select("id", "duration_ms").sort("duration_ms", descending=True)
    assert puts.to_polars().equals(expected)
    assert puts.head(2).to_polars().equals(expected.head(2))
    assert len(puts) == 3
    assert pl.concat(pl.DataFrame(batch) for batch in puts.batches()).equals(expected)


def test_a_loop_has_exact_times(trace: twintap.Trace, url: str) -> None:
    begins = {row["id"]: row["begin"] for row in trace.requests().columns("id", "begin")}
    spans = pl.DataFrame(StoredTrace(url).read("spans"))
    assert begins == dict(spans.select("span_id", "start_trace_ns").rows())


def test_a_loop_within_a_loop(trace: twintap.Trace) -> None:
    counts = {host["host"]: len(trace.packets(f"sender = '{host['host']}'")) for host in trace.hosts().columns("host")}
    assert sum(counts.values()) == 375


@pytest.mark.parametrize(
    "view", [view for view in VIEWS if hasattr(twintap.Trace, view.name)], ids=lambda view: view.name
)
def test_each_table_has_a_method_and_meanings(view, trace: twintap.Trace) -> None:
    rows = getattr(trace, view.name)()
    assert rows.to_arrow().schema.names == list(trace.columns(view.name))
    assert len(getattr(trace, view.name)("1 = 2")) == 0


def test_what_is_wrong_is_said(trace: twintap.Trace, tmp_path: Path) -> None:
    with pytest.raises(twintap.Error, match="no such trace"):
        twintap.open(str(tmp_path / "nothing"))
    with pytest.raises(twintap.Error, match="nope"):
        trace.requests("nope = 1").to_polars()
    with pytest.raises(twintap.Error, match="2 statements"):
        trace.sql("SELECT 1; DROP VIEW requests").to_polars()
    with pytest.raises(twintap.Error, match="5 are needed"):
        trace.why()


def test_why_and_report(trace: twintap.Trace) -> None:
    why = trace.why("slowest", against="#2")
    assert why.extra_ns == sum(stage.extra_ns for stage in why.stages)
    assert trace.why("#3", against="#2").number == 3
    assert "4 requests" in trace.report().story.sentence or trace.report().story.duration_ns > 0


def test_what_would_be_otherwise(trace: twintap.Trace) -> None:
    forecast = trace.what_if(twintap.Changes(own_time={"proxy": 0}), search="PUT")
    assert forecast.classes
    assert all(each.name.startswith("PUT") for each in forecast.classes)
    assert all(each.p50_now_ns < each.p50_ns for each in forecast.classes)
    with pytest.raises(twintap.Error, match="nothing is to be otherwise"):
        trace.what_if(twintap.Changes())


def test_a_notebook_shows_some_rows(trace: twintap.Trace) -> None:
    assert trace.packets()._repr_html_().count("<tr>") >= 10
    assert "SELECT" in repr(trace.packets())


def test_where_the_analysis_is_not_installed_it_says_how_to_install_it() -> None:
    script = "import sys; sys.modules['duckdb'] = None; import twintap"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert re.search(r"duckdb is not installed; run: .*pip install .*\[collector\]", done.stderr.splitlines()[-1])


EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_examples_of_the_page_run(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "monday").symlink_to(url)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for example in EXAMPLES:
        exec(compile(example, str(PAGE), "exec"), names)
    assert names["asymmetry"].height == names["delays"].height
    assert (tmp_path / "durations.html").stat().st_size > 0
