"""What the pages show first of a long trace is made when the timeline is there."""

import threading
from pathlib import Path

import pytest

from collector.queries import RequestSelection, TraceView, open_trace
from testkit.synthetic_trace import Recipe, write_synthetic_trace
from viewer import warming
from viewer.app import create_app

KEPT = ("stage_columns", "numbers_of_stages")


@pytest.fixture
def trace(tmp_path: Path) -> TraceView:
    """Three uploads."""
    write_synthetic_trace(tmp_path / "trace", Recipe())
    return open_trace(str(tmp_path / "trace"))


def ask(trace: TraceView, *paths: str) -> None:
    """Ask for these, and wait for what that began."""
    client, before = create_app(trace).server.test_client(), threading.enumerate()
    for path in paths:
        assert client.get(path, headers={"Host": "127.0.0.1"}).status_code == 200
    for thread in threading.enumerate():
        if thread not in before:
            thread.join(60)


def test_a_long_trace_is_made_ready_after_the_last_question_of_the_timeline(
    trace: TraceView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warming, "LONG", 2)
    ask(trace, "/api/overview", "/api/slowness")
    assert not set(KEPT) & set(trace.__dict__)
    ask(trace, "/api/bands?from=0&to=1000000&lanes=0", "/api/bands?from=0&to=1000000&lanes=1")
    assert set(KEPT) <= set(trace.__dict__)
    made = trace.load._latencies.cache_info().currsize
    trace.load.latencies(RequestSelection(class_name=trace.load.classes[0].name))
    assert (made, trace.load._latencies.cache_info().currsize) == (1, 1)


def test_of_a_short_trace_nothing_is_made_before_it_is_asked_for(trace: TraceView) -> None:
    ask(trace, "/api/bands?from=0&to=1000000&lanes=0")
    assert not set(KEPT) & set(trace.__dict__)
