"""`tracer capture`: record this host's TCP packets, to a directory or to a collector."""

import os
import select
import socket
import sys
from pathlib import Path

import click

from tracer.agent import CaptureOptions, run_capture
from tracer.segments import check_name


@click.command("capture", context_settings={"max_content_width": 110})
@click.option(
    "-i", "--interface", "interfaces", multiple=True, required=True, help="Interface to capture; may be given again."
)
@click.option("--host", help="Name of this host in the trace.  [default: its host name]")
@click.option(
    "--write", "folder", type=click.Path(path_type=Path), help="Write segments to DIR/<host>/.", metavar="DIR"
)
@click.option(
    "--payload",
    default="http",
    show_default=True,
    metavar="none|http|N",
    help="What to keep behind the TCP header: nothing, heads of HTTP messages, or the first N bytes. "
    "Credentials in heads are overwritten in any case.",
)
@click.option(
    "--snaplen", type=click.IntRange(64, 500_000), help="Bytes of each packet to look at.  [default: by --payload]"
)
@click.option(
    "--ring-mib", type=click.IntRange(1, 1024), default=32, show_default=True, help="Memory for bursts, by interface."
)
@click.option(
    "--until-eof", is_flag=True, help="Stop also when standard input ends: for a program that starts this one."
)
@click.argument("expression", nargs=-1, metavar="[FILTER]")
def command(
    *,
    interfaces: tuple[str, ...],
    host: str | None,
    folder: Path | None,
    payload: str,
    snaplen: int | None,
    ring_mib: int,
    until_eof: bool,
    expression: tuple[str, ...],
) -> None:
    """Record the TCP packets that this host sends and receives, until Ctrl-C or SIGTERM.

    FILTER is an expression as for tcpdump; by default all TCP over IPv4 and IPv6 is recorded.
    """
    if folder is None:
        raise click.UsageError("Give --write DIR.")
    host = check_name("host", host or socket.gethostname())
    options = CaptureOptions(
        interfaces=tuple(dict.fromkeys(interfaces)),
        host=host,
        payload=payload,
        snaplen=snaplen or 0,
        ring_bytes=ring_mib << 20,
        expression=" ".join(expression),
    )
    where = folder / host
    run_capture(
        options,
        where,
        on_start=lambda: _say(_started(options, str(where))),
        on_notice=_say,
        stop_requested=_input_ended if until_eof else None,
    )


def _started(options: CaptureOptions, where: str) -> str:
    return f"capturing on {', '.join(options.interfaces)} as host {options.host} to {where}"


def _input_ended() -> bool:
    readable, _, _ = select.select([sys.stdin], [], [], 0)
    return bool(readable) and not os.read(sys.stdin.fileno(), 4096)


def _say(line: str) -> None:
    click.echo(f"tracer: {line}", err=True)
