"""`tracer record`: capture on all hosts of the cluster while a command runs, then analyse."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import click

from collector.analysis import AnalysisOptions, analyse
from collector.commands.address_option import address_option
from collector.commands.naming_options import naming_options, operators_names
from collector.commands.progress_text import progress_display
from collector.commands.thresholds_option import thresholds_option
from collector.commands.trace_folders import TRACES, say_leftovers, trace_place
from collector.decode.sources import COMMAND_FILE, SAMPLES_FILE, host_addresses, host_sources, samples_of, write_command
from collector.findings.thresholds import Thresholds
from collector.reporting.report import build_report
from collector.reporting.text import show
from collector.service.recording import Cluster, Recording, find_cluster, record
from collector.services.rings import read_rings
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
@click.option("--quiet", is_flag=True, help="Do not show the progress of the analysis.")
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND...")
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
) -> None:
    """Capture on all hosts of the running cluster while COMMAND runs on its client host, then analyse.

    The trace also holds what each host used meanwhile (CPU, disk, network). The exit status is COMMAND's. The captures
    are kept beside the trace, in TRACE.captures; `tracer replay` makes the same trace from them.
    """
    options = AnalysisOptions(
        rings=read_rings(rings) if rings else (),
        names=operators_names(own_services, names),
        addresses=host_addresses(addresses),
        thresholds=thresholds,
    )
    cluster = find_cluster()
    _check_hosts(options.addresses, hosts or [host.host for host in cluster.hosts])
    with trace_place(trace) as place:
        say_leftovers(place)
        recording = _record_to(place, cluster, hosts, argv, options, quiet=quiet)
        show(build_report(place))
        click.echo(without_secrets(f"trace: {place}"))
    sys.exit(recording.command.exit_status)


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
    captures = _captures_folder(trace)
    staging = captures.with_name(f".{captures.name}.{os.getpid()}")
    with ExitStack() as stack:
        stack.callback(scratch.release, staging)
        stack.callback(shutil.rmtree, staging, ignore_errors=True)  # before it is there: a signal comes at any time
        scratch.make(staging)
        recording = record(cluster, hosts, argv, staging)
        shutil.rmtree(captures, ignore_errors=True)
        staging.rename(captures)
    _report_agents(recording)
    write_command(captures, recording.command)
    try:
        given = [str(captures)]
        sources, samples = host_sources(given), samples_of(given)
        with progress_display(quiet=quiet) as progress:
            analyse(sources, trace, command=recording.command, samples=samples, options=options, progress=progress)
    except TracerError:
        click.echo(f"tracer: the captures are kept; to analyse them again: tracer replay {captures}", err=True)
        raise
    return recording


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
