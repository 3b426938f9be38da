"""Figures are pure: rows in, a figure out."""

import pytest
from msgspec.structs import replace

from collector.queries import Edge, Node, ServiceGraph, Span, TraceView
from collector.queries.match_calls import match_calls
from collector.requests.outcomes import OUTCOMES
from viewer.figures.frame import duration_axis
from viewer.figures.latency import OUTCOME_STYLES
from viewer.figures.service_graph import edge_words, graph_figure
from viewer.figures.waterfall import MOST_SPANS, OFF_PATH_OPACITY, PHASES, aligned_figure, phases, waterfall_figure
from viewer.ledger import ledger_rows
from viewer.wording import (
    OUTCOME_WORDS,
    answer_words,
    compact,
    delay,
    duration,
    exact_time,
    outcome_words,
    status_words,
)

ROOT = Span(
    number=0, depth=0, client_host="client", server_host="proxy", service="swift-proxy", method="PUT",
    target="/v1/a/c/o",
    status=201, result="", status_class="ok", protocol="http/1.1", transaction_id="tx1", complete=True, outcome="ok",
    link_reason=None, confidence=None,
    start_ns=1_000, end_ns=11_000, connected_ns=1_800, request_sent_ns=2_000,
    request_received_ns=3_000, response_sent_ns=10_000,
    request_bytes=1, response_bytes=1, uncertainty_ns=10, connect_ns=1_000, request_network_ns=1_000, work_ns=2_000,
    response_network_ns=1_000,
)  # fmt: skip
CHILD = replace(
    ROOT, number=1, depth=1, client_host="proxy", server_host="storage1", service="swift-object", start_ns=4_000,
    connected_ns=None,
    end_ns=9_000, request_sent_ns=None, request_received_ns=5_000, response_sent_ns=8_000, connect_ns=0,
    request_network_ns=1_000, work_ns=3_000, response_network_ns=1_000,
)  # fmt: skip

OTHER_ROOT = replace(ROOT, start_ns=501_000, end_ns=506_000, request_received_ns=503_000, response_sent_ns=505_000)
AFTER_HALF_A_MILLISECOND = (
    replace(CHILD, start_ns=502_000, request_received_ns=502_500, response_sent_ns=503_500, end_ns=504_000),
    replace(
        CHILD, service="auth", start_ns=501_100, request_received_ns=501_200, response_sent_ns=504_200, end_ns=504_300
    ),
)


def test_phases_follow_each_other_and_unknown_bounds_leave_them_out() -> None:
    assert phases(ROOT) == ((1_000, 1_800), (1_800, 2_000), (2_000, 3_000), (3_000, 10_000), (10_000, 11_000))
    assert phases(CHILD) == (None, None, None, (5_000, 8_000), (8_000, 9_000))
    assert phases(replace(ROOT, connected_ns=None))[:2] == ((1_000, 2_000), None)


def test_the_waterfall_has_a_bar_for_each_known_phase() -> None:
    figure = waterfall_figure([ROOT, CHILD])
    assert [trace.name for trace in figure.data] == [name for name, _ in PHASES]
    assert [len(trace.x) for trace in figure.data] == [1, 1, 1, 2, 2]
    work = figure.data[3]
    assert (list(work.base), list(work.x)) == ([2.0, 4.0], [7.0, 3.0])  # µs from the root's start
    assert [list(each) for each in work.customdata] == [[1_000, 11_000], [4_000, 9_000]]


def test_what_nothing_waited_for_is_faint_and_says_so() -> None:
    late = replace(CHILD, connect_ns=0, request_network_ns=0, work_ns=0, response_network_ns=0)
    work = waterfall_figure([ROOT, CHILD, late]).data[3]
    assert work.marker.opacity == (1.0, 1.0, OFF_PATH_OPACITY)
    assert ["off the critical path" in text for text in work.hovertext] == [False, False, True]


def test_another_request_is_aligned_below_each_call_from_its_own_beginning() -> None:
    others = [OTHER_ROOT, *AFTER_HALF_A_MILLISECOND]
    figure = aligned_figure(match_calls([ROOT, CHILD], others), "#7")
    assert [bar.name for bar in figure.data] == 2 * [name for name, _ in PHASES]
    mine, other = figure.data[3], figure.data[8]
    assert list(mine.base) == [2.0, 4.0]
    assert list(zip(other.base, other.x, strict=True)) == [(2.0, 2.0), (0.2, 3.0), (1.5, 1.0)]
    assert list(mine.y) == pytest.approx([0.03, 2.03])
    assert list(other.y) == pytest.approx([0.3, 1.3, 2.3])  # below, as rows count downwards
    assert [text.split("<br>")[0] for text in other.hovertext] == 3 * ["#7: PUT /v1/a/c/o"]
    titles = [title.text for title in figure.layout.annotations]
    assert ["(only in #7)" in text for text in titles] == [False, True, False]
    assert "(not in #7)" in aligned_figure(match_calls([ROOT, CHILD], [ROOT]), "#7").layout.annotations[1].text


def test_the_waterfall_shows_so_many_spans_and_no_more() -> None:
    figure = waterfall_figure([ROOT, *[CHILD] * (MOST_SPANS + 5)])
    assert len(figure.layout.annotations) == MOST_SPANS


def test_texts_of_a_capture_are_escaped_for_plotly() -> None:
    hostile = replace(ROOT, server_host="<b>x</b>", target="/<a href='javascript:1'>", client_host="<i>")
    figure = waterfall_figure([hostile])
    texts = [figure.layout.annotations[0].text, *(text for trace in figure.data for text in trace.hovertext)]
    for text in texts:
        assert "<b>x" not in text
        assert "<a" not in text
        assert "<i>" not in text
        assert "&lt;" in text


def test_the_ledger_adds_up_and_names_what_is_left() -> None:
    rows = ledger_rows([ROOT, CHILD])
    assert sum(row.duration_ns for row in rows) == ROOT.duration_ns
    assert rows[0].text == "work in swift-object on storage1"
    short = ledger_rows([replace(ROOT, work_ns=500)])
    assert [(row.text, row.duration_ns) for row in short if not row.stage] == [("not accounted for", 6_500)]


def test_the_ledger_of_every_request_adds_up_to_its_duration(small_trace: TraceView) -> None:
    for request in small_trace.requests(10):
        rows = ledger_rows(small_trace.spans(request.number))
        assert sum(row.duration_ns for row in rows) == request.duration_ns
        assert all(row.stage for row in rows)


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [(0, "0 ns"), (640, "640 ns"), (1_500, "1.50 µs"), (73_200_000, "73.2 ms"), (-2_000_000_000, "-2.00 s")],
)
def test_durations_in_words(time_ns: int, text: str) -> None:
    assert duration(time_ns) == text


@pytest.mark.parametrize(
    ("time_ns", "text"), [(40_907_790, "0.040 907 790 s"), (-1, "-0.000 000 001 s"), (60 * 10**9, "60.000 000 000 s")]
)
def test_exact_times(time_ns: int, text: str) -> None:
    assert exact_time(time_ns) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0"), (9_999, "9,999"), (12_345, "12.3k"), (999_900, "999k"), (3_076_800, "3.08M")]
)
def test_counts_that_fit_a_button(count: int, text: str) -> None:
    assert compact(count) == text


def test_every_outcome_has_words_and_a_look() -> None:
    assert list(OUTCOME_WORDS) == OUTCOMES
    assert {name for name, _ in OUTCOME_STYLES} == {*OUTCOMES}
    assert answer_words("200", "abandoned") == answer_words("", "abandoned") == " → given up"
    assert status_words("", "abandoned") == "given up by the client"
    assert outcome_words(1, 2, 0) == ", 1 failed, 2 given up by clients"


def test_a_call_of_unknown_outcome_is_drawn_as_one_that_went_well_and_says_so() -> None:
    unknown = Edge("client", "db", 4, 0, 0, 4, 100, 1_000, 2_000, 12, 0, 3)
    nodes = (Node("client", 0, 0.5), Node("db", 1, 0.5))
    for edge, dashed in (
        (unknown, False),
        (replace(unknown, failed_count=1), True),
        (replace(unknown, lost_count=1), True),
    ):
        figure = graph_figure(ServiceGraph(nodes, (edge,)), lambda _: "", lambda _: "")
        assert (figure.data[0].line.dash != "solid") == dashed
        assert "4 of unknown outcome" in edge_words(edge)


def test_a_span_with_an_uncertain_parent_has_a_dashed_frame_and_says_so() -> None:
    doubtful = replace(CHILD, link_reason="timing", confidence=0.62, doubt="parent uncertain: 62 % PUT /<a>")
    figure = waterfall_figure([ROOT, CHILD, doubtful])
    (frame,) = figure.layout.shapes
    assert frame.line.dash == "dash"
    assert (frame.x0, frame.x1) == (3.0, 8.0)  # µs from the root's start
    assert 1.5 < (frame.y0 + frame.y1) / 2 < 2.5
    doubtful = [text for bars in figure.data for text in bars.hovertext if "parent uncertain" in text]
    assert doubtful
    assert all("PUT /&lt;a&gt;" in text for text in doubtful)


@pytest.mark.parametrize(
    ("low_ns", "high_ns"),
    [
        (4_100_000, 6_900_000),
        (21_000_000, 29_000_000),
        (1, 3),
        (100, 10**9),
        (5_000, 5_000),
        (321_900_000, 327_000_000),
        (1_000_000, 1_000_100),
    ],
)
def test_an_axis_of_durations_is_labelled_however_narrow_the_data_are(low_ns: int, high_ns: int) -> None:
    """Requests of 4.1 to 6.9 ms, then of 322 to 327 ms, stood at an axis without a label."""
    axis = duration_axis(low_ns, high_ns, "duration")
    inside = [tick for tick in axis["tickvals"] if low_ns <= tick <= high_ns]
    assert len(inside) >= 2 or low_ns == high_ns
    assert 1 <= len(axis["tickvals"]) <= 10
    assert len(set(axis["ticktext"])) == len(axis["ticktext"])


@pytest.mark.parametrize(
    ("uncertainty_ns", "likely_ns", "expected"),
    [
        (20_000, 1_500, "12.0 µs ± 1.50 µs (95 %; at most 20.0 µs)"),
        (20_000, 20_000, "12.0 µs ± 20.0 µs"),
        (20_000, None, "12.0 µs ± 20.0 µs"),
        (None, None, "12.0 µs (uncertainty unknown)"),
    ],
    ids=["both", "no better than the bound", "a trace without it", "no traffic back"],
)
def test_the_likely_error_of_a_delay_stands_before_its_bound(
    uncertainty_ns: int | None, likely_ns: int | None, expected: str
) -> None:
    assert delay(12_000, uncertainty_ns, likely_ns) == expected
