"""The command line's door: what it settles before a command is imported."""

import os

import click
import pytest

from tracer.cli import LIBRARY_THREADS, limit_threads, tracer


@pytest.mark.parametrize(("command", "limited"), [("replay", True), ("record", False), ("view", False)])
def test_libraries_threads_are_limited_for_a_replay_alone(
    command: str, limited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in LIBRARY_THREADS:
        monkeypatch.setenv(name, "")  # so that what is set is undone
        monkeypatch.delenv(name)
    assert tracer.get_command(click.Context(tracer), command) is not None
    assert {name: os.environ.get(name) for name in LIBRARY_THREADS} == {
        name: str(count) if limited else None for name, count in LIBRARY_THREADS.items()
    }


def test_what_the_environment_says_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LIBRARY_THREADS:
        monkeypatch.setenv(name, "7")
    limit_threads()
    assert {os.environ[name] for name in LIBRARY_THREADS} == {"7"}
