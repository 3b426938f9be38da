"""`tracer record`: capture on all hosts of the cluster while a command runs, then analyse."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import click

from collector.analysis import analyse
from collector.decoding import HostSource
from collector.recording import TRACER, Recording, find_cluster, record
from tracer.errors import InputError, TracerError

TRACES = Path("traces")
"""Where traces go that are not told a place."""


@click.command("record", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--on", "hosts", multiple=True, metavar="HOST", help="Capture this host; may be given again.  [default: all]"
)
@click.option("-o", "--output", "trace", metavar="TRACE", help="Where the trace goes.  [default: traces/<time>]")
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND...")
def command(*, hosts: tuple[str, ...], trace: str | None, argv: tuple[str, ...]) -> None:
    """Capture on all hosts of the running cluster while COMMAND runs on its client host, then analyse.

    The exit status is COMMAND's. The captures are kept beside the trace, in TRACE.captures.
    """
    cluster = find_cluster()
    trace = trace or str(TRACES / time.strftime("%Y%m%dT%H%M%S"))
    captures = _captures_folder(trace)
    recording = record(cluster, hosts, argv, captures)
    _tell(recording)
    sources = [HostSource(folder.name, tuple(sorted(folder.glob("*.pcapng")))) for folder in sorted(captures.iterdir())]
    try:
        analyse(sources, trace, command=recording.command)
    except TracerError:
        click.echo(f"tracer: the captures are kept; to analyse them again: tracer replay {captures}", err=True)
        raise
    subprocess.run([*TRACER, "report", trace], check=False)
    click.echo(f"trace: {trace}")
    sys.exit(recording.command.exit_status)


def _captures_folder(trace: str) -> Path:
    """An empty folder beside the trace, or below `traces` if that is elsewhere than on this disk."""
    name = trace.rstrip("/")
    folder = Path(f"{name}.captures") if "://" not in name else TRACES / f"{name.rsplit('/', 1)[-1]}.captures"
    if folder.exists():
        if any(path.is_file() and path.suffix != ".pcapng" for path in folder.rglob("*")):
            raise InputError(f"{folder} holds other files than captures", "choose another place with -o")
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    return folder


def _tell(recording: Recording) -> None:
    for line in recording.agent_lines:
        click.echo(f"tracer: {line}", err=True)
    for line in recording.failures:
        click.echo(f"tracer: the agent on {line}", err=True)
