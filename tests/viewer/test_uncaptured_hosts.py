"""Where a host was not captured nothing says None, null or nan: no report, no page, no JSON.

Scripts of everything that is found wrong are played with each of their hosts left out in turn, and a bundled capture
with most of its files left out.
"""

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import plotly
import pytest
from msgspec import to_builtins
from rich.console import Console

from collector.analysis import analyse
from collector.decode.sources import command_of, host_sources
from collector.queries import TraceSearch, TraceView, open_trace
from collector.queries.asking import query_views
from collector.reporting.html import make_html
from collector.reporting.report import build_report
from collector.reporting.text import show
from tests.collector.findings.test_findings import CASES
from tests.helpers.script_traces import write_script_trace
from viewer.details import request_details, waterfall
from viewer.layout import page_meta
from viewer.pages.address import Address
from viewer.pages.app import CONTENTS, page_content
from viewer.pages.context import Companions, PageData
from viewer.wording import hop_facts, hop_title

CAPTURES = Path(__file__).parents[2] / "captures"
NOTHING = re.compile(r"\b(None|null|nan|NaN)\b")
MEANINGS = frozenset(column.meaning for view in query_views() for column in view.columns)
"""Of the columns that can be asked in SQL, which has nulls; their rows show them as empty cells."""
SCRIPT = re.compile(r"<script.*?</script>", re.DOTALL)


@pytest.fixture(autouse=True)
def plotly_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of reports hold its script, 4.5 MB that would be written and left out again for each."""
    monkeypatch.setattr("plotly.io._html.get_plotlyjs", str)


def hosts_of(script: str) -> list[str]:
    return sorted(set(re.findall(r"([a-z][\w-]*):\d+(?= >|$)", script, re.MULTILINE)) - {"-"})


PLAYED = [
    (f"{name}, without {host}", re.sub(rf"\b{host}:(?=\d+( >|$))", "-:", script, flags=re.MULTILINE))
    for name, (script, *_) in CASES.items()
    for host in hosts_of(script)
    if len(hosts_of(script)) > 1
]


def texts(tree: Any) -> Iterator[str]:
    """Every text in a tree of plain values."""
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from texts(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from texts(value)


def outputs(url: str, *, by_both: bool) -> Iterator[tuple[str, str]]:
    """Where, and a text; of pages with lanes by service and by host, or by service alone."""
    report, printed = build_report(url), io.StringIO()
    show(report, Console(file=printed, width=200, highlight=False))
    yield "report", printed.getvalue()
    yield "page of the report", SCRIPT.sub("", make_html(report))
    yield from (("report --json", text) for text in texts(json.loads(json.dumps(to_builtins(report)))))
    yield from (("viewer", text) for text in texts_of_pages(open_trace(url), ("", "nodes=hosts") if by_both else ("",)))


def texts_of_pages(trace: TraceView, queries: tuple[str, ...]) -> Iterator[str]:
    data = PageData(trace, TraceSearch(trace), Companions())
    for path in CONTENTS:
        for query in queries:
            yield from (text for text in plain(page_content(data, Address.of(path, query))) if text not in MEANINGS)
    yield from plain(page_meta(trace))
    for number in range(trace.summary.roots_count):
        spans = trace.spans(number)
        yield from plain(request_details(trace.request(number), spans))
        yield from plain(waterfall(spans))
    for number in range(trace.summary.hops_count):
        hop = trace.hop(number)
        assert hop is not None
        yield from texts([hop_title(hop), *(text for fact in hop_facts(hop) for text in fact)])


def plain(content: object) -> Iterator[str]:
    yield from texts(json.loads(json.dumps(content, cls=plotly.utils.PlotlyJSONEncoder)))


def texts_without_names(url: str, *, by_both: bool) -> list[str]:
    """Texts with a word for nothing in it, and where."""
    return [f"{where}: {text[:300]}" for where, text in outputs(url, by_both=by_both) if NOTHING.search(text)]


def test_a_word_for_nothing_is_found() -> None:
    assert NOTHING.search("port 8000 on None")
    assert not NOTHING.search("none of them; nullable")
    assert len(PLAYED) > 20


@pytest.mark.parametrize("script", [script for _, script in PLAYED], ids=[name for name, _ in PLAYED])
def test_what_is_wrong_with_a_host_that_was_not_captured(script: str, tmp_path: Path) -> None:
    url = str(tmp_path / "trace")
    write_script_trace(url, script)
    assert texts_without_names(url, by_both=False) == []


@pytest.mark.parametrize("kept", [("client",), ("proxy",), ("storage1",), ("client", "storage2")], ids=" ".join)
def test_a_capture_with_files_left_out(kept: tuple[str, ...], tmp_path: Path) -> None:
    url, folder = str(tmp_path / "trace"), CAPTURES / "swift-upload-1B"
    analyse(host_sources([str(folder / f"{host}.pcapng") for host in kept]), url, command=command_of([str(folder)]))
    assert texts_without_names(url, by_both=True) == []
