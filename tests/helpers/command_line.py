"""`tracer …` within this process, from the words to the exit status: a process of its own takes a second to start."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
from click.testing import CliRunner

from tracer import cli, interrupts, private_files


def run_here(
    *words: object, given: str = "", environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What it prints and its exit status. Arguments: `given` on standard input; more of the `environment`."""
    argv = ["tracer", *map(str, words)]
    with _process_as_before(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", argv)
        with CliRunner(env=environment).isolation(given) as (printed, said, _):
            try:
                cli.main()
                status = 0
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else int(end.code is not None)
            sys.stdout.flush()
            sys.stderr.flush()
            return subprocess.CompletedProcess(argv, status, printed.getvalue().decode(), said.getvalue().decode())


@contextmanager
def _process_as_before() -> Iterator[None]:
    """What the command line changes of its process is as before at the end."""
    handlers = {number: signal.getsignal(number) for number in interrupts.ENDING}
    environment, mask = dict(os.environ), os.umask(0o077)
    os.umask(mask)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "unraisablehook", sys.unraisablehook)
        patch.setattr(private_files, "_earlier", [])
        try:
            yield
        finally:
            os.umask(mask)
            os.environ.clear()
            os.environ.update(environment)
            for number, handler in handlers.items():
                signal.signal(number, handler)
