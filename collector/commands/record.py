"""`tracer record`: capture on any hosts, or on those of the cluster, while a command runs, then analyse."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click

from collector.analysis import AnalysisOptions, analyse
from collector.commands.address_option import address_option
from collector.commands.far_index import write_far_index
from collector.commands.naming_options import naming_options, operators_names
from collector.commands.progress_text import progress_display
from collector.commands.record_hosts import record_hosts
from collector.commands.remote_options import RemoteChoice, remote_choice, remote_options
from collector.commands.thresholds_option import thresholds_option
from collector.commands.trace_folders import TRACES, say_leftovers, trace_place
from collector.decode.input_limits import limits_here
from collector.decode.sources import COMMAND_FILE, SAMPLES_FILE, host_addresses, host_sources, samples_of, write_command
from collector.findings.thresholds import Thresholds
from collector.reporting.report import build_report
from collector.reporting.text import show
from collector.service.recording import TRACER, Cluster, Recording, find_cluster, record
from collector.services.rings import read_rings
from collector.trace.model import CommandInfo
from tracer import scratch
from tracer.commands.secret_options import secret_options
from tracer.errors import InputError, TracerError
from tracer.secret_rules import without_secrets


@click.command("record", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--on", "hosts", multiple=True, metavar="HOST", help="Capture this host; may be given again.  [default: all]"
)
@click.option(
    "--ring",
    "rings",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Read Swift's rings (*.ring.gz) from DIR, which say which servers hold a partition.",
)
@click.option("-o", "--output", "trace", metavar="TRACE", help="Where the trace goes.  [default: traces/<time>]")
@naming_options
@thresholds_option
@secret_options
@address_option
@remote_options
@click.option("--quiet", is_flag=True, help="Do not show the progress of the analysis.")
@click.argument("argv", nargs=-1, type=click.UNPROCESSED, metavar="[COMMAND...]")
def command(
    *,
    hosts: tuple[str, ...],
    trace: str | None,
    rings: Path | None,
    own_services: Path | None,
    names: tuple[str, ...],
    thresholds: Thresholds,
    addresses: tuple[str, ...],
    quiet: bool,
    argv: tuple[str, ...],
    **remote: Any,
) -> None:
    """Capture on hosts while COMMAND runs, or until Ctrl-C, then analyse.

    Hosts are those that --ssh and the like name, and COMMAND runs here. Nothing is installed on them: our agent is sent
    along and removed, or tcpdump captures. Without such options they are all hosts of the bundled cluster, and COMMAND
    runs on its client host; then the trace also holds what each host used meanwhile (CPU, disk, network).

    The exit status is COMMAND's. The captures are kept beside the trace, in TRACE.captures; `tracer replay` makes the
    same trace from them.
    """
    options = AnalysisOptions(
        rings=read_rings(rings) if rings else (),
        names=operators_names(own_services, names),
        addresses=host_addresses(addresses),
        thresholds=thresholds,
        limits=limits_here(),
    )
    choice = remote_choice(**remote)
    if choice.ways:
        if hosts:
            raise InputError("--on is for hosts of the cluster", "leave it out; --ssh names hosts")
        _check_hosts(options.addresses, [way.host for way in choice.ways])
        sys.exit(_record_remotely(choice, trace, argv, options, quiet=quiet))
    if not argv:
        raise click.UsageError("Give a COMMAND, or hosts by --ssh and the like.")
    cluster = find_cluster()
    _check_hosts(options.addresses, hosts or [host.host for host in cluster.hosts])
    with trace_place(trace) as place:
        say_leftovers(place)
        recording = _record_to(place, cluster, hosts, argv, options, quiet=quiet)
        show(build_report(place))
        click.echo(without_secrets(f"trace: {place}"))
    sys.exit(recording.command.exit_status)


def _record_remotely(
    choice: RemoteChoice, trace: str | None, argv: tuple[str, ...], options: AnalysisOptions, *, quiet: bool
) -> int:
    """Record hosts that are no cluster, show the report and the page. Returns the command's exit status."""
    with trace_place(trace) as place:
        say_leftovers(place)
        with _staged_captures(place) as (staging, captures):
            command, status = record_hosts(choice, argv, staging)
        if command is not None:
            write_command(captures, command)
        _analyse(captures, place, command, options, quiet=quiet)
        show(build_report(place))
        click.echo(without_secrets(f"trace: {place}"))
        if sys.stdout.isatty() if choice.opens_page is None else choice.opens_page:
            subprocess.run([*TRACER, "view", place], check=False)
        else:
            click.echo(without_secrets(f"page: tracer view {place}"))
    return status


def _check_hosts(addresses: Mapping[str, frozenset[str]], hosts: Sequence[str]) -> None:
    """Check the options before recording. Raises: `InputError` for an address of a host that is not captured."""
    unknown = sorted(addresses.keys() - set(hosts))
    if unknown:
        raise InputError(f"host {unknown[0]} is not captured", f"give --address for one of: {', '.join(hosts)}")


def _record_to(
    trace: str,
    cluster: Cluster,
    hosts: tuple[str, ...],
    argv: tuple[str, ...],
    options: AnalysisOptions,
    *,
    quiet: bool,
) -> Recording:
    """Record while `argv` runs, and analyse the captures. Raises: as `record` and `analyse`."""
    with _staged_captures(trace) as (staging, captures):
        recording = record(cluster, hosts, argv, staging)
    _report_agents(recording)
    write_command(captures, recording.command)
    _analyse(captures, trace, recording.command, options, quiet=quiet)
    return recording


@contextmanager
def _staged_captures(trace: str) -> Iterator[tuple[Path, Path]]:
    """A folder to record into, and the one that it becomes at the end; it is removed if that does not come."""
    captures = _captures_folder(trace)
    staging = captures.with_name(f".{captures.name}.{os.getpid()}")
    with ExitStack() as stack:
        stack.callback(scratch.release, staging)
        stack.callback(shutil.rmtree, staging, ignore_errors=True)  # before it is there: a signal comes at any time
        scratch.make(staging)
        yield staging, captures
        shutil.rmtree(captures, ignore_errors=True)
        staging.rename(captures)


def _analyse(captures: Path, trace: str, command: CommandInfo | None, options: AnalysisOptions, *, quiet: bool) -> None:
    """Make the trace of the captures. Raises: as `analyse`; then the captures are kept, which it says."""
    try:
        given = [str(captures)]
        sources, samples = host_sources(given), samples_of(given)
        with progress_display(quiet=quiet) as progress:
            analyse(sources, trace, command=command, samples=samples, options=options, progress=progress)
        write_far_index(trace)
    except (TracerError, KeyboardInterrupt):
        click.echo(f"tracer: the captures are kept; to analyse them again: tracer replay {captures}", err=True)
        raise


def _captures_folder(trace: str) -> Path:
    """A folder for captures beside the trace, or below `traces` if the trace is not on a local disk.

    Raises: `InputError` if it holds other files than captures.
    """
    name = trace.rstrip("/")
    folder = Path(f"{name}.captures") if "://" not in name else TRACES / f"{name.rsplit('/', 1)[-1]}.captures"
    present = (path for path in folder.rglob("*") if path.is_file())
    if folder.is_file() or not all(
        path.suffix == ".pcapng" or path.name in (COMMAND_FILE, SAMPLES_FILE) for path in present
    ):
        raise InputError(f"{folder} holds other files than captures", "choose another place with -o")
    return folder


def _report_agents(recording: Recording) -> None:
    """Print the agents' notices and failures; drops are counted in the trace, and its report shows them."""
    for line in recording.notices:
        click.echo(f"tracer: {line}", err=True)
    for line in recording.failures:
        click.echo(f"tracer: the agent on {line}", err=True)
