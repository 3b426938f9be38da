"""`tracer capture`: record this host's TCP packets, to a directory or to a collector."""

import logging
import os
import re
import select
import socket
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from tracer.agent import CaptureOptions, SkewedClock, run_capture
from tracer.commands.collector_options import collector_access, collector_options
from tracer.commands.log_options import log_options
from tracer.commands.secret_options import secret_options
from tracer.cpu_budget import LEAST_CPU_PERCENT, MOST_CPU_PERCENT
from tracer.memory_bound import DEFAULT_MIB, LEAST_MIB, divide_memory
from tracer.privileges import FOR_HARDWARE_TIMESTAMPS, FOR_PROCESSES, drop_capabilities
from tracer.segments import check_name
from tracer.service_log import Notice, hide, log_for_program, notice_to
from tracer.shipped_capture import run_shipped_capture
from tracer.spool import Destination, default_spool

LOG = logging.getLogger("twintap.agent")
UNITS = {"mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)\s*([MGT]iB)", re.IGNORECASE)
LEAST_KEPT_BYTES = 64 << 20
"""Four segments of the largest size."""


@click.command("capture", context_settings={"max_content_width": 110})
@click.option(
    "-i",
    "--interface",
    "interfaces",
    multiple=True,
    required=True,
    help="Interface to capture; may be given again. `any`, or a pattern like 'veth*': also those that come later.",
)
@click.option("--host", help="Name of this host in the trace.  [default: its host name]")
@click.option(
    "--write", "folder", type=click.Path(path_type=Path), help="Write segments to DIR/<host>/.", metavar="DIR"
)
@collector_options
@click.option("--session", default="default", show_default=True, help="Name under which the collector joins hosts.")
@click.option(
    "--spool",
    type=click.Path(path_type=Path),
    help="Folder for segments that are not yet sent.  [default: ~/.local/state/…]",
)
@click.option(
    "--spool-mib", type=click.IntRange(1), default=1024, show_default=True, help="Most that the spool may hold."
)
@click.option(
    "--keep",
    metavar="SIZE",
    callback=lambda _context, _option, text: parse_size(text) if text else 0,
    help="With --collector: be a flight recorder. Keep the newest segments here, at most SIZE (2GiB); send a sample, "
    "and the time that the collector asks for.  [default: send all]",
)
@click.option(
    "--sample",
    type=click.FloatRange(0, 10),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="With --keep: what to send of each 10 s; 0 for nothing, then triggers see no requests of this host.",
)
@click.option(
    "--payload",
    default="heads",
    show_default=True,
    metavar="none|heads|N",
    help="What to keep behind the TCP header: nothing, what names requests and answers (heads of HTTP messages; of "
    "other protocols their counterparts), or the first N bytes. Credentials are overwritten in any case.",
)
@click.option(
    "--snaplen", type=click.IntRange(64, 500_000), help="Bytes of each packet to capture.  [default: by --payload]"
)
@click.option(
    "--ring-mib",
    type=click.IntRange(1, 1024),
    help="Memory for bursts, for each interface.  [default: 32, or as --memory-mib allows]",
)
@click.option(
    "--memory-mib",
    type=click.IntRange(LEAST_MIB),
    default=DEFAULT_MIB,
    show_default=True,
    help="Of memory, that this agent may use; it is divided among rings, segments that wait, and lists of them.",
)
@click.option(
    "--cpu-budget",
    type=click.FloatRange(LEAST_CPU_PERCENT, MOST_CPU_PERCENT),
    metavar="PERCENT",
    help="Of one core, that this agent may use. Beyond, it keeps shorter heads, then only some connections, the same "
    "on every host; the trace says which share.  [default: no limit]",
)
@click.option(
    "--include-own",
    is_flag=True,
    help="Also record this agent's own traffic with the collector.  [default: left out, whatever FILTER says]",
)
@click.option(
    "--owners",
    type=click.Choice(["processes", "users", "none"]),
    default="users",
    show_default=True,
    help="What to record of who owns the connections: also the processes, for which root keeps CAP_SYS_PTRACE and "
    "CAP_DAC_READ_SEARCH; or what the kernel says to everybody, users, units and containers.",
)
@click.option(
    "--timestamps",
    type=click.Choice(["software", "hardware"]),
    default="software",
    show_default=True,
    help="Who stamps packets: the kernel, or the network card those that it receives, for which root keeps "
    "CAP_NET_ADMIN. A card that cannot is named, with what it offers.",
)
@click.option(
    "--until-eof",
    is_flag=True,
    callback=lambda _context, _option, wanted: _until_eof(wanted),
    help="Stop also when standard input ends: for a program that starts this one.",
)
@click.option(
    "--clock-error",
    metavar="NAME=N,…",
    help="For tests only: write stamps as a wrong clock gives them. Names: offset_ns, drift_ppb, since_ns.",
)
@log_options
@secret_options
@click.argument("expression", nargs=-1, metavar="[FILTER]")
def command(
    *,
    interfaces: tuple[str, ...],
    host: str | None,
    folder: Path | None,
    session: str,
    spool: Path | None,
    spool_mib: int,
    keep: int,
    sample: float,
    payload: str,
    snaplen: int | None,
    ring_mib: int | None,
    memory_mib: int,
    cpu_budget: float | None,
    include_own: bool,
    owners: str,
    timestamps: str,
    until_eof: bool,
    clock_error: str | None,
    expression: tuple[str, ...],
    **of_collector: Any,
) -> None:
    """Record the TCP packets that this host sends and receives, until Ctrl-C or SIGTERM.

    FILTER is an expression as for tcpdump; by default all TCP over IPv4 and IPv6 is recorded.
    """
    memory = divide_memory(memory_mib << 20, len(set(interfaces)), ring_mib << 20 if ring_mib else None)
    options = CaptureOptions(
        interfaces=tuple(dict.fromkeys(interfaces)),
        host=check_name("host", host or socket.gethostname()),
        payload=payload,
        snaplen=snaplen or 0,
        ring_bytes=memory.ring_bytes,
        rings_bytes=memory.rings_bytes,
        segment_bytes=memory.segment_bytes,
        expression=" ".join(expression),
        clock_error=_clock_error(clock_error or ""),
        with_owners=owners != "none",
        cpu_percent=cpu_budget or 0,
        timestamps=timestamps,
    )
    stop_requested = _input_ended if until_eof else None
    access = collector_access(**of_collector, warn=notice_to(LOG))
    if keep and access is None:
        raise click.UsageError("--keep is for an agent with --collector: it sends what the collector asks for.")
    more = FOR_PROCESSES if owners == "processes" else frozenset()
    more |= FOR_HARDWARE_TIMESTAMPS if timestamps == "hardware" else frozenset()
    if folder is not None and access is None:
        where = folder / options.host
        drop_capabilities([where], more=more)
        notice = notice_to(LOG, host=options.host)
        start = _starter(options, where, notice)
        run_capture(options, where, on_start=start, on_notice=notice, stop_requested=stop_requested)
    elif access is not None and folder is None:
        hide(access.token)
        destination = Destination(
            access.url,
            check_name("session", session),
            access.token,
            spool or default_spool(),
            spool_mib << 20,
            access.token_file,
            access.url_file,
            access.tls,
            keep_bytes=keep,
            sample_ns=round(sample * 1e9),
            memory=memory,
        )
        drop_capabilities([destination.spool], access.files(), more)
        where_to = f"{access.url}, session {session}"
        notice = notice_to(LOG, session=session, host=options.host)
        start = _starter(options, f"a history of {keep >> 20:,} MiB for {where_to}" if keep else where_to, notice)
        run_shipped_capture(
            options,
            destination,
            on_start=start,
            on_notice=notice,
            stop_requested=stop_requested,
            include_own=include_own,
        )
    else:
        raise click.UsageError("Give either --write DIR or --collector URL.")


def _starter(options: CaptureOptions, where: object, notice: Notice) -> Callable[[], None]:
    """Says that every interface is captured; `tracer record` waits for this line."""
    line = f"capturing on {', '.join(options.interfaces)} as host {options.host} to {where}"
    return lambda: notice(line)


def parse_size(text: str) -> int:
    """The bytes of a text such as 2GiB. Raises: click.BadParameter."""
    found = SIZE.fullmatch(text.strip())
    size_bytes = round(float(found[1]) * UNITS[found[2].lower()]) if found else 0
    if size_bytes < LEAST_KEPT_BYTES:
        hint = f"{text!r} is no size of at least {LEAST_KEPT_BYTES >> 20} MiB, such as 500MiB or 2GiB"
        raise click.BadParameter(hint, param_hint="--keep")
    return size_bytes


def _clock_error(text: str) -> SkewedClock:
    """The parts of `--clock-error`. Raises: click.BadParameter."""
    parts = [part.partition("=") for part in text.split(",") if part]
    known = [field.name for field in fields(SkewedClock)]
    try:
        values = {name: int(value) for name, _, value in parts}
        if not values.keys() <= set(known) or values.get("since_ns", 0) < 0:
            raise ValueError
    except ValueError:
        hint = f"{text!r} is not like offset_ns=5000000,drift_ppb=-2000,since_ns=0"
        raise click.BadParameter(hint, param_hint="--clock-error") from None
    return SkewedClock(**values)


def _until_eof(wanted: bool) -> bool:
    """What `--until-eof` says. It is for a program, which knows the lines of a plain log."""
    if wanted:
        log_for_program()
    return wanted


def _input_ended() -> bool:
    waiting = select.poll()  # unlike select(), for any number of open files
    waiting.register(sys.stdin, select.POLLIN)
    return bool(waiting.poll(0)) and not os.read(sys.stdin.fileno(), 4096)
