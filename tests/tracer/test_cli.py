"""The command line's door: what it settles before a command is imported."""

import os

import click
import pytest

from tracer import cli
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


def _import_error(message: str, name: str) -> ImportError:
    return ImportError(message, name=name)


@pytest.mark.parametrize(
    ("error", "has_core", "missing"),
    [
        (_import_error("cannot import name '_core' from 'collector' (x)", "collector"), False, "collector._core"),
        (_import_error("cannot import name '_core' from 'collector' (x)", "collector"), True, None),
        (_import_error("cannot import name 'Gone' from 'collector.trace' (x)", "collector.trace"), False, None),
        (ModuleNotFoundError("No module named 'polars'", name="polars"), True, "polars"),
        (ModuleNotFoundError("No module named 'collector.gone'", name="collector.gone"), True, None),
    ],
)
def test_only_what_an_extra_installs_is_named_as_missing(
    error: ImportError, has_core: bool, missing: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "find_spec", lambda name: object() if has_core else None)
    assert cli._missing_module(error, "collector") == missing
    assert cli._missing_module(error, "tracer") is None
