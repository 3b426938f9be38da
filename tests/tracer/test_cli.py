"""The command line's door: what it settles before a command is imported."""

import os
import platform
import subprocess
import sys

import click
import pytest

from tracer import cli
from tracer.cli import LIBRARY_SETTINGS, set_up_libraries, tracer


@pytest.mark.parametrize(("command", "is_set_up"), [("replay", True), ("record", False), ("view", False)])
def test_libraries_are_set_up_for_a_replay_alone(
    command: str, is_set_up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in LIBRARY_SETTINGS:
        monkeypatch.setenv(name, "")  # so that what is set is undone
        monkeypatch.delenv(name)
    assert tracer.get_command(click.Context(tracer), command) is not None
    assert {name: os.environ.get(name) for name in LIBRARY_SETTINGS} == {
        name: value if is_set_up else None for name, value in LIBRARY_SETTINGS.items()
    }


def test_what_the_environment_says_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LIBRARY_SETTINGS:
        monkeypatch.setenv(name, "7")
    set_up_libraries()
    assert {os.environ[name] for name in LIBRARY_SETTINGS} == {"7"}


HEAPS_WITH_A_THREAD = """
import ctypes, threading
from tracer.cli import share_one_heap
{}
thread = threading.Thread(target=list, args=(range(1000),))
thread.start()
thread.join()
ctypes.CDLL(None).malloc_stats()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other systems have other heaps")
@pytest.mark.parametrize(("call", "heaps_count"), [("", 2), ("share_one_heap()", 1)])
def test_a_thread_has_a_heap_of_its_own_unless_all_share_one(call: str, heaps_count: int) -> None:
    code = HEAPS_WITH_A_THREAD.format(call)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.count("Arena ") == heaps_count


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
