"""`tracer record`: capture on all hosts of the cluster while a command runs, then analyse."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import click

from collector.analysis import analyse
from collector.recording import TRACER, Recording, find_cluster, record
from collector.sources import COMMAND_FILE, host_sources, write_command
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

    The exit status is COMMAND's. The captures are kept beside the trace, in TRACE.captures; `tracer replay`
    makes the same trace of them again.
    """
    cluster = find_cluster()
    trace = trace or str(TRACES / time.strftime("%Y%m%dT%H%M%S"))
    captures = _captures_folder(trace)
    recording = record(cluster, hosts, argv, captures)
    _tell(recording)
    write_command(captures, recording.command)
    try:
        analyse(host_sources([str(captures)]), trace, command=recording.command)
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
        ours = (path.suffix == ".pcapng" or path.name == COMMAND_FILE for path in folder.rglob("*") if path.is_file())
        if not all(ours):
            raise InputError(f"{folder} holds other files than captures", "choose another place with -o")
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    return folder


def _tell(recording: Recording) -> None:
    for line in recording.agent_lines:
        click.echo(f"tracer: {line}", err=True)
    for line in recording.failures:
        click.echo(f"tracer: the agent on {line}", err=True)
