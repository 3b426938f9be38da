"""Traces that are given no place have one each."""

from pathlib import Path

import pytest

from collector.commands import trace_folders
from collector.commands.trace_folders import trace_place


def test_traces_of_one_second_have_places_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trace_folders.time, "strftime", lambda _: "20260102T030405")
    with trace_place(None) as one, trace_place(None) as other, trace_place("mine") as mine:
        assert (one, other, mine) == ("traces/20260102T030405", "traces/20260102T030405-2", "mine")
        (Path(one) / "trace.json").touch()
    assert [path.name for path in Path("traces").iterdir()] == ["20260102T030405"]
