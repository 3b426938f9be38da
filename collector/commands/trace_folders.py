"""The default place of a trace: a folder below `traces`, named after the time."""

import itertools
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from tracer.errors import ResourceError
from tracer.scratch import remove_leftovers

TRACES = Path("traces")


@contextmanager
def trace_place(given: str | None) -> Iterator[str]:
    """The given place, or else a new folder below `TRACES`, which is removed if it stays empty.

    It is named after the second, with a number appended if the name is taken, also by other processes.
    Raises: `ResourceError` if it cannot be made.
    """
    if given is not None:
        yield given
        return
    folder = _make_unused(TRACES)
    try:
        yield str(folder)
    finally:
        with suppress(OSError):
            folder.rmdir()


def say_leftovers(trace: str, *more: Path) -> None:
    """Remove leftovers of killed runs beside this trace, in the temporary folder and in `more`, and report it."""
    beside = [] if "://" in trace else [Path(trace).parent]
    for line in remove_leftovers(*beside, Path(tempfile.gettempdir()), *more):
        click.echo(f"tracer: {line}", err=True)


def _make_unused(parent: Path) -> Path:
    name = time.strftime("%Y%m%dT%H%M%S")
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for number in itertools.count(1):
            folder = parent / (name if number == 1 else f"{name}-{number}")
            with suppress(FileExistsError):
                folder.mkdir()
                return folder
    except OSError as error:
        what = f"{parent} cannot be written to ({error.strerror})"
        raise ResourceError(what, "choose another place for the trace with -o") from None
    raise AssertionError("numbers do not end")
