"""What rests on inferred links is counted, in text, page and JSON; uncertain ones name their next candidate."""

import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from collector.commands.report import command
from collector.queries import open_trace
from collector.reporting.html import make_html
from collector.reporting.report import build_report
from collector.reporting.text import show
from collector.requests.link_doubt import LinkSummary, describe_doubt, describe_links
from testkit.synthetic_trace import Recipe, write_synthetic_trace

SAID = "9 of 9 calls are linked by inference, not by an id (mean confidence 62 %, 9 below 80 %)"


def trace_at(folder: Path, confidence: float) -> str:
    write_synthetic_trace(folder, Recipe(argv=None, link_confidence=confidence))
    return str(folder)


def links_of(url: str) -> dict[str, float]:
    found: dict[str, float] = json.loads(CliRunner().invoke(command, ["--json", url]).output)["links"]
    return found


def report_text(url: str) -> str:
    out = io.StringIO()
    show(build_report(url), Console(file=out, width=200, highlight=False, force_terminal=True, color_system=None))
    return out.getvalue()


def test_what_rests_on_inferred_links_is_reported(tmp_path: Path) -> None:
    url = trace_at(tmp_path / "trace", 0.62)
    links = links_of(url)
    assert (links["count"], links["inferred_count"], links["uncertain_count"]) == (9, 9, 9)
    assert links["mean_confidence"] == pytest.approx(0.62)
    (headline, slowest) = (links["headline_ns"], open_trace(url).requests(1)[0])
    of_calls = sum(
        span.connect_ns + span.request_network_ns + span.work_ns + span.response_network_ns
        for span in open_trace(url).spans(slowest.number)[1:]
    )
    assert 0 < links["headline_inferred_ns"] == of_calls < headline
    share = f"{of_calls / headline:.0%}".replace("%", " %")
    for text in (report_text(url), make_html(build_report(url))):
        assert f"{SAID}; {share} of the time above is on them" in text


def test_links_that_were_read_are_no_matter(tmp_path: Path) -> None:
    url = trace_at(tmp_path / "trace", 1.0)
    assert links_of(url) == {
        **{"count": 9, "inferred_count": 0, "uncertain_count": 0, "mean_confidence": None},
        **{"headline_inferred_ns": 0, "headline_ns": links_of(url)["headline_ns"]},
    }
    assert "inference" not in report_text(url)


def test_an_uncertain_parent_names_the_next_candidate(tmp_path: Path) -> None:
    view = open_trace(trace_at(tmp_path / "low", 0.62))
    root, *calls = view.spans(0)
    title = "PUT /v1/AUTH_test/photos/cat.jpg"
    assert root.doubt == ""
    assert {span.doubt for span in calls} == {f"parent uncertain: 62 % {title}; next candidate {title} 19 %"}
    arrows = view.request_arrows(0, 1000)
    assert arrows is not None
    doubts = [hop.doubt for number in arrows.number.tolist() if (hop := view.hop(number)) is not None]
    assert [bool(doubt) for doubt in doubts] == arrows.uncertain.astype(bool).tolist()
    assert 0 < arrows.uncertain.sum() < len(arrows.number)
    sure = open_trace(trace_at(tmp_path / "high", 0.9))
    assert {span.doubt for span in sure.spans(0)} == {""}


def test_words() -> None:
    assert describe_doubt("PUT /a", 0.62, "GET /b", 0.21) == "parent uncertain: 62 % PUT /a; next candidate GET /b 21 %"
    assert describe_doubt("PUT /a", 0.62, None, None) == "parent uncertain: 62 % PUT /a"
    assert describe_links(LinkSummary(4, 2, 0, 0.9, 0, 100)).endswith(
        "(mean confidence 90 %); none of the time above is on them"
    )
    assert describe_links(LinkSummary(4, 2, 0, 0.9, 1, 1000)).endswith("less than 1 % of the time above is on them")
