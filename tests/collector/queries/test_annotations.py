"""What the timeline shows of annotations, and how they compare with packets."""

from io import StringIO
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from collector.annotations.agreement import Said, said_of
from collector.queries import NO_REQUEST, AnnotationCounts, Annotations, TraceView, open_trace
from collector.queries import annotations as module
from collector.queries.search import TraceSearch
from collector.queries.why import explain_against_request
from collector.queries.why_text import show_why
from collector.reporting.html import make_html
from collector.reporting.report import build_report
from collector.reporting.text import show
from collector.trace.reading import Trace
from testkit.synthetic_trace import EPOCH_NS, Recipe, write_synthetic_trace
from testkit.tables import table
from tests.helpers.stored_tables import write_table

MS = 1_000_000
LINE = {
    **{"kind": "log", "format": "nginx", "source": "a.log", "host": "proxy", "service": "nginx", "duration_ns": 0},
    **{"uncertainty_ns": MS, "duration_uncertainty_ns": 0, "name": "GET / 200", "text": "the line", "severity": "info"},
    **{"phases": ""},
}


def write_annotations(folder: Path, rows: list[dict[str, object]]) -> None:
    numbered = [LINE | {"annotation_id": number} | row for number, row in enumerate(rows)]
    write_table(str(folder), "annotations", table("annotations", numbered))


@pytest.fixture
def trace(tmp_path: Path) -> TraceView:
    """Three uploads; a line of one of them at the proxy, an error of none, and one of a host without a capture."""
    folder = tmp_path / "trace"
    write_synthetic_trace(folder, Recipe())
    exchanges = pl.DataFrame(Trace(str(folder)).read("exchanges")).cast({pl.Categorical: pl.String})
    [joined, *_] = exchanges.filter(pl.col("server_host") == "proxy").to_dicts()
    begin, end = joined["request_first_received_trace_ns"], joined["response_last_sent_trace_ns"]
    of_request = {"exchange_id": joined["exchange_id"], "joined_by": "id", "start_trace_ns": begin}
    rows = [
        of_request | {"duration_ns": end - begin + 5 * MS, "phases": "queue:7"},
        {"start_trace_ns": EPOCH_NS + 60 * MS, "severity": "error", "uncertainty_ns": None},
        {"start_trace_ns": EPOCH_NS + 61 * MS, "host": "elsewhere"},
    ]
    write_annotations(folder, rows)
    return open_trace(str(folder))


def test_those_of_a_window_are_given_with_their_lanes_and_requests(trace: TraceView) -> None:
    found = Annotations(trace).between(0, trace.duration_ns)
    assert isinstance(found, pl.DataFrame)
    lanes = [lane.host for lane in trace.lanes]
    assert [(row["annotation_id"], lanes[row["lane"]]) for row in found.to_dicts()] == [(0, "proxy"), (1, "proxy")]
    assert found["request"].to_list() == [0, NO_REQUEST]
    assert found["start"].to_list()[1] == EPOCH_NS + 60 * MS - trace.start_ns


@pytest.mark.parametrize(("from_ms", "to_ms", "count"), [(0, 1, 0), (59, 59.9, 0), (60, 61, 1), (58, 60, 1)])
def test_a_window_s_edges(trace: TraceView, from_ms: float, to_ms: float, count: int) -> None:
    first = EPOCH_NS - trace.start_ns
    found = Annotations(trace).between(int(first + from_ms * MS), int(first + to_ms * MS))
    assert isinstance(found, pl.DataFrame)
    assert len(found.filter(pl.col("annotation_id") == 1)) == count


def test_many_are_counted_with_their_errors(trace: TraceView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_EACH", 1)
    found = Annotations(trace).between(0, trace.duration_ns)
    assert isinstance(found, AnnotationCounts)
    assert found.counts.shape == (1, module.BINS)
    assert (found.counts.sum(), found.errors_counts.sum()) == (2, 1)
    at = (EPOCH_NS + 60 * MS - trace.start_ns) / found.bin_ns
    assert found.errors_counts[0, int(at)] == 1


def test_one_with_its_text_and_its_neighbours(trace: TraceView) -> None:
    annotations = Annotations(trace)
    one = annotations.one(0)
    assert one is not None
    assert (one.text, one.request, one.source) == ("the line", 0, "a.log")
    assert one.said is not None
    assert one.said.comparison == "5.0 ms longer than packets show: they disagree"
    assert annotations.one(3) is None
    assert annotations.beside(0, 0, backwards=False) == 1
    assert annotations.beside(1, 0, backwards=False) is None, "the next is on no lane"
    assert annotations.beside(1, 0, backwards=True) == 0
    after = EPOCH_NS + 50 * MS - trace.start_ns
    assert annotations.beside(-1, after, backwards=False) == 1


def test_what_is_said_of_a_request(trace: TraceView) -> None:
    [said] = Annotations(trace).of_request(0)
    assert (said.by, said.joined_by) == ("nginx on proxy", "id")
    assert "queue 7 ns" in said.words
    assert Annotations(trace).of_request(1) == ()


def test_a_trace_without_annotations_has_none(tmp_path: Path) -> None:
    write_synthetic_trace(tmp_path / "plain", Recipe())
    plain = open_trace(str(tmp_path / "plain"))
    annotations = Annotations(plain)
    assert (annotations.count, annotations.of_request(0)) == (0, ())
    assert said_of(plain.stored, [1]) == ()


def statement(duration_ns: int, seen_ns: int | None, off_ns: int = 0) -> Said:
    return Said(0, "log", "nginx", "web", "nginx", "", "", 1, "id", duration_ns, off_ns, (), seen_ns)


@pytest.mark.parametrize(
    ("duration_ms", "seen_ms", "off_ms", "words"),
    [
        (10, 10, 0, "as packets show"),
        (12, 10, 2, "as packets show"),
        (13, 10, 2, "3.0 ms longer than packets show: they disagree"),
        (8, 10, 2, "as packets show"),
        (7, 10, 2, "packets show 3.0 ms more, before its clock began or after it handed the answer on"),
        (0, 10, 0, ""),
        (10, None, 0, ""),
    ],
)
def test_a_log_and_packets_differ_only_by_more_than_the_log_rounds(
    duration_ms: int, seen_ms: int | None, off_ms: int, words: str
) -> None:
    seen = None if seen_ms is None else seen_ms * MS
    assert statement(duration_ms * MS, seen, off_ms * MS).comparison == words


def test_a_report_counts_them_by_who_wrote_them_and_where_they_disagree(trace: TraceView) -> None:
    report = build_report(trace.url)
    assert [line.words for line in report.annotations] == [
        ("nginx on proxy", "2 lines, 1 joined to a request (by id 1); 1 say longer than packets show"),
        ("nginx on elsewhere", "1 line, 0 joined to a request"),
    ]
    written = StringIO()
    show(report, Console(file=written, width=100))
    assert "nginx on proxy: 2 lines, 1 joined to a request" in written.getvalue()
    assert "<h2>Logs</h2>" in make_html(report)


def test_why_shows_what_the_logs_say_of_the_request(trace: TraceView) -> None:
    why = explain_against_request(trace, 0, 1)
    assert [each.by for each in why.said] == ["nginx on proxy"]
    written = StringIO()
    show_why(why, Console(file=written, width=100))
    assert "nginx on proxy, GET / 200: " in written.getvalue()
    assert explain_against_request(trace, 1, 0).said == ()


def test_a_search_finds_requests_by_what_a_line_says(trace: TraceView) -> None:
    search = TraceSearch(trace)
    assert search.requests('log:"THE line"').tolist() == [0]
    assert search.requests("not log:line").tolist() == [1, 2]
    assert search.requests("log:nothing").tolist() == []
