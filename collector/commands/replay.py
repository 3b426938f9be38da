"""`tracer replay`: builds a trace from captures of several hosts."""

import os
import tempfile
from collections.abc import Sequence
from datetime import tzinfo
from functools import partial
from pathlib import Path

import click
from msgspec.structs import replace

from collector.analysis import AnalysisOptions, analyse
from collector.analysis.places import HerePlaces, Places
from collector.annotations.log_options import LogOptions
from collector.commands.address_option import address_option
from collector.commands.far_index import write_far_index
from collector.commands.naming_options import naming_options, operators_names
from collector.commands.period_option import parse_length
from collector.commands.progress_text import progress_display
from collector.commands.replay_series import replay_series
from collector.commands.thresholds_option import thresholds_option
from collector.commands.trace_folders import say_leftovers, trace_place
from collector.decode.far_captures import FarCaptures
from collector.decode.hosts_files import read_hosts_files
from collector.decode.input_limits import UNLIMITED, limits_here
from collector.decode.sources import command_of, host_addresses, host_sources, samples_of
from collector.decode.time_range import EDGE_NS, parse_range
from collector.decode.tls_keys import read_key_logs
from collector.findings.thresholds import Thresholds
from collector.reporting.report import build_report
from collector.reporting.text import show
from collector.services.rings import read_rings
from tracer.commands.secret_options import secret_options
from tracer.errors import InputError, MissingDependencyError
from tracer.installation import install_command
from tracer.secret_rules import without_secrets

MOST_WORKERS_A_CORE = 8
"""More would only wait for each other, and take minutes to start."""


@click.command("replay")
@click.option("-o", "--output", "trace", metavar="TRACE", help="Where the trace goes.  [default: traces/<time>]")
@click.option("--no-align", is_flag=True, help="Do not align the hosts' clocks.")
@click.option(
    "--ring",
    "rings",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Read Swift's rings (*.ring.gz) from DIR, which say which servers hold a partition.",
)
@naming_options
@thresholds_option
@secret_options
@address_option
@click.option(
    "--hosts-file",
    "hosts_files",
    metavar="FILE",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Name lanes and addresses by FILE, which is written as /etc/hosts is; may be given again.  "
    "[default: by names in the captures]",
)
@click.option(
    "--keys",
    metavar="FILE",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Open TLS 1.2 and 1.3 with the secrets in FILE, a key log (SSLKEYLOGFILE); may be given again. Secrets in "
    "pcapng captures are used without it.",
)
@click.option(
    "--logs",
    metavar="PLACE",
    multiple=True,
    help="Place the lines of logs beside the packets: a file named after its host, HOST=FILE, or a folder of them "
    "(nginx, HAProxy, Swift, PostgreSQL, JSON lines); may be given again.",
)
@click.option(
    "--log-zone",
    "log_zones",
    metavar="ZONE",
    multiple=True,
    help="The zone of times in logs that name none, such as Europe/Berlin or +02:00; of one host: HOST=ZONE.  "
    "[default: UTC]",
)
@click.option(
    "--spans",
    metavar="[HOST=]FILE",
    multiple=True,
    help="Place the spans of another tracer beside the packets: OTLP's JSON or Jaeger's; of HOST, if they name none; "
    "may be given again.",
)
@click.option("--from", "from_time", metavar="TIME", help="Leave out packets before TIME (2026-11-26T14:05:30, UTC).")
@click.option("--to", "to_time", metavar="TIME", help="Leave out packets after TIME.")
@click.option(
    "--every",
    metavar="TIME",
    help="Make a trace of each 10m, 1h, 1d … (UTC), and a summary of each, in the folder of -o: a series.",
)
@click.option(
    "--engine",
    metavar="URL",
    help="Analyse on the Dask cluster of the scheduler at dask://HOST:PORT; dask:// starts one here.",
)
@click.option(
    "--workers",
    metavar="N",
    type=click.IntRange(1),
    help="Start N worker processes here, of 2 GiB at most each.  [default: threads of one process]",
)
@click.option(
    "--scratch",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="A folder that all workers share, for intermediate data.  [default: beside the trace]",
)
@click.option(
    "--no-limits",
    is_flag=True,
    help="Accept compressed captures, connections and requests of any size and number; memory is then not bounded.",
)
@click.option("--quiet", is_flag=True, help="Do not show progress.")
@click.argument("captures", nargs=-1, required=True, metavar="FILE|HOST=FILE|DIR|URL...")
def command(
    *,
    trace: str | None,
    no_align: bool,
    rings: Path | None,
    own_services: Path | None,
    names: tuple[str, ...],
    thresholds: Thresholds,
    addresses: tuple[str, ...],
    hosts_files: tuple[Path, ...],
    keys: tuple[Path, ...],
    logs: tuple[str, ...],
    log_zones: tuple[str, ...],
    spans: tuple[str, ...],
    from_time: str | None,
    to_time: str | None,
    every: str | None,
    engine: str | None,
    workers: int | None,
    scratch: Path | None,
    no_limits: bool,
    quiet: bool,
    captures: tuple[str, ...],
) -> None:
    """Turn captures of several hosts (pcap, pcapng; also .gz, .zst) into a trace, and report it.

    A file's host is its stem unless given as HOST=FILE; several files of a host are read in the given order. In a
    folder, each subfolder is a host; a folder that `tracer record` kept also says when the command ran. A session's
    folder at a collector (DATA/sessions/NAME) is read, too: several are one, of which each has a part. What is at a URL
    (s3://BUCKET/FOLDER, https://…) is fetched for the time of the analysis. --from and --to are times of each host's
    clock; of an agent's segments only those of that time are read. --engine and --workers give the same trace as one
    process (docs/scale.md). --every makes a series of traces (docs/series.md), which goes on where it ended if it is
    made again. --logs places lines of servers beside their requests (docs/logs.md), --spans those of other tracers
    (docs/imports.md). --hosts-file names lanes and addresses (docs/names.md).
    """
    length_ns = None if every is None else parse_length(every)
    tls_keys, unread = read_key_logs(keys)
    wanted = parse_range(from_time, to_time)
    named, unnamed = read_hosts_files(hosts_files)
    options = AnalysisOptions(
        align_clocks=not no_align,
        rings=read_rings(rings) if rings else (),
        names=operators_names(own_services, names),
        addresses=host_addresses(addresses),
        limits=UNLIMITED if no_limits else limits_here(in_workers=bool(engine or workers)),
        thresholds=thresholds,
        keys=tls_keys,
        hosts_files=named,
        counters=(*unread, *unnamed),
        logs=LogOptions(logs, _zones_of(log_zones)),
        spans=spans,
        wanted=wanted,
        edge_ns=0 if wanted is None else EDGE_NS,
    )
    with trace_place(trace) as place:
        say_leftovers(place, *([scratch] if scratch else []))
        if length_ns is not None:
            make = partial(_places, engine=engine, workers=workers, scratch=scratch, keys=keys)
            replay_series(captures, place, length_ns, options, make, quiet=quiet)
            return
        with (
            progress_display(quiet=quiet) as progress,
            _places(place, engine, workers, scratch, keys) as where,
            FarCaptures(captures, where.spill or Path(tempfile.gettempdir()), where.engine) as near,
        ):
            analyse(
                host_sources(near.arguments),
                place,
                command=command_of(near.arguments),
                samples=samples_of(near.arguments),
                options=replace(options, file_names=near.names),
                progress=progress,
                places=where,
            )
        write_far_index(place)
        show(build_report(place))
        click.echo(without_secrets(f"trace: {place}"))


def _zones_of(texts: Sequence[str]) -> dict[str, tzinfo]:
    """As `zones_of`. Raises: `InputError` for what is no zone."""
    if not texts:
        return {}
    from collector.annotations.logs.reading import zones_of  # noqa: PLC0415 - who reads no logs need not wait for it

    return zones_of(texts)


def _places(trace: str, engine: str | None, workers: int | None, scratch: Path | None, keys: Sequence[Path]) -> Places:
    """Where to analyse, as the options say.

    Raises: `InputError` for options that do not fit; `MissingDependencyError` without Dask; as `DaskPlaces`.
    """
    if engine is None and workers is None:
        if scratch is not None:
            raise InputError("--scratch is for worker processes", "give --workers or --engine, too")
        return HerePlaces(trace)
    try:
        from collector.analysis.dask_places import DaskPlaces, scheduler_address  # noqa: PLC0415 - others need no Dask
    except ImportError:
        raise MissingDependencyError("Dask is not installed", f"run: {install_command('scale')}") from None
    scheduler = scheduler_address(engine) if engine else None
    if scheduler and workers:
        raise InputError("--workers starts a cluster here, --engine uses a running one", "give one of them")
    cores = os.cpu_count() or 1
    if workers and workers > MOST_WORKERS_A_CORE * cores:
        most = f"give at most {MOST_WORKERS_A_CORE * cores}, or those of other machines with --engine"
        raise InputError(f"{workers} workers are too many for the {cores} cores of this machine", most)
    return DaskPlaces(trace, scheduler, workers, scratch, keys)
