"""`tracer collect`: run the collector service that agents send to."""

import contextlib
import ipaddress
import logging
import os
import resource
import socket
from functools import partial
from pathlib import Path
from typing import Any

import click
import uvicorn
from fastapi import FastAPI

from collector.commands.naming_options import naming_options, operators_names
from collector.commands.period_option import parse_length
from collector.commands.thresholds_option import thresholds_option
from collector.commands.tls_options import collector_tls, open_tls, tls_options
from collector.commands.trigger_options import operators_triggers, trigger_options
from collector.findings.thresholds import Thresholds
from collector.service import ingest, live
from collector.service.app import create_app
from collector.service.door import Door, protocol_behind
from collector.service.handshakes import Handshakes
from collector.service.periods import PeriodSettings, limits_of_traces
from collector.service.retention import limits_of
from collector.service.settings import CollectorSettings
from collector.service.shared_data import enter_folder
from collector.service.tls_gate import TlsGate, protocol_with_tls
from tracer.commands.log_options import log_options
from tracer.commands.secret_options import secret_options
from tracer.errors import InputError, PrivilegeError, ResourceError
from tracer.interrupts import call_on_interrupt
from tracer.service_log import Notice, hide, notice_to
from tracer.tokens import leave_token, left_token, make_up_token, read_token, take_back, token_options

DEFAULT_LISTEN = "127.0.0.1:8710"
LOG = logging.getLogger("twintap.collector")
LEFT_SECONDS = 3600.0
"""What has not changed for so long is of no collector that still runs."""
OTHERS = "give others --token-file"


@click.command("collect")
@click.option(
    "--data", type=click.Path(path_type=Path, file_okay=False), required=True, help="Where segments and traces go"
)
@click.option(
    "--listen", default=DEFAULT_LISTEN, show_default=True, metavar="ADDRESS:PORT", help="Where to listen for agents."
)
@token_options("Agents must give the same.")
@click.option(
    "--no-token", is_flag=True, help="Do not require a token: everyone with an account on this host may send and read."
)
@tls_options
@click.option(
    "--live-window",
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    type=click.FloatRange(0, 600),
    help="Keep a trace of the newest SECONDS of each session; 0 for none.",
)
@click.option(
    "--live-mib",
    default=64,
    show_default=True,
    type=click.IntRange(1, 128),
    help="Most MiB of segments in a live trace; if SECONDS would need more, it is shorter.",
)
@click.option(
    "--keep-hours",
    type=click.FloatRange(min=0, min_open=True),
    metavar="HOURS",
    help="Delete segments that arrived longer ago.  [default: keep all]",
)
@click.option(
    "--keep-gib",
    type=click.FloatRange(min=0, min_open=True),
    metavar="GIB",
    help="Keep at most so much of each session: its oldest segments are deleted.  [default: keep all]",
)
@click.option(
    "--period",
    metavar="TIME",
    help="Make a trace and a summary of each 10m, 1h, 1d … of each session as it comes, in DATA/series/SESSION.",
)
@click.option(
    "--keep-traces-hours",
    type=click.FloatRange(min=0, min_open=True),
    metavar="HOURS",
    help="Remove traces of periods that ended longer ago; their summaries stay.  [default: keep all]",
)
@click.option(
    "--keep-traces-gib",
    type=click.FloatRange(min=0, min_open=True),
    metavar="GIB",
    help="Keep at most so much of each session's traces of periods; their summaries stay.  [default: keep all]",
)
@click.option(
    "--shared",
    is_flag=True,
    help="Other collectors use the same --data (a file system that all mount): agents may send to any of them.",
)
@trigger_options
@naming_options
@thresholds_option
@log_options
@secret_options
def command(
    *,
    data: Path,
    listen: str,
    token: str | None,
    token_file: Path | None,
    no_token: bool,
    live_window: float,
    live_mib: int,
    keep_hours: float | None,
    keep_gib: float | None,
    period: str | None,
    keep_traces_hours: float | None,
    keep_traces_gib: float | None,
    own_services: Path | None,
    names: tuple[str, ...],
    thresholds: Thresholds,
    shared: bool,
    **more: Any,
) -> None:
    """Receive segments from agents, and make traces from them, until Ctrl-C.

    Without a token it makes one, which agents on this host find by themselves, or which is in the agent.pem of
    --make-ca. Beyond loopback it listens only with TLS (--make-ca DIR does all of it) and a token. `/docs` describes
    the HTTP interface.
    """
    address, port = parse_listen(listen)
    tls = collector_tls(listen, more, is_local=is_loopback(address))
    secret = read_token(token, token_file)
    if tls and not secret and not no_token:
        secret = tls.token()
    if not secret and not is_loopback(address):
        raise InputError(f"{listen} can be reached from other machines", "give --token-file, or set TWINTAP_TOKEN")
    called = operators_names(own_services, names)
    triggers = operators_triggers(more, live_window)
    periods = PeriodSettings(
        0 if period is None else parse_length(period), limits_of_traces(keep_traces_hours, keep_traces_gib)
    )
    if period is None and (keep_traces_hours or keep_traces_gib):
        raise InputError("--keep-traces-hours and --keep-traces-gib are for periods", "give --period, too")
    say = notice_to(LOG)
    with ingest.disk_errors(data):
        data.mkdir(parents=True, exist_ok=True)
        enter_folder(data, partial(_clean, data, say), is_shared=shared)
        ingest.clean(data, LEFT_SECONDS)
    _raise_descriptor_limit()
    with open_listener(address, port) as listener, contextlib.ExitStack() as left, _quiet_interrupt():
        said = [f"collecting at {'https' if tls else 'http'}://{_listener_text(listener)} into {data}"]
        if not secret and not no_token:
            secret, place = _create_token(listener.getsockname()[1], data)
            left.callback(take_back, place, secret)
            said.append(f"its token is in {place} where agents of this user on this machine find it; {OTHERS}")
        hide(secret)
        settings = CollectorSettings(
            data,
            secret,
            live_window,
            live_mib << 20,
            local_only=is_loopback(address),
            retention=limits_of(keep_hours, keep_gib),
            names=called,
            thresholds=thresholds,
            triggers=triggers,
            periods=periods,
            shared=shared,
        )
        handshakes = Handshakes()
        context = open_tls(tls, listener, secret, handshakes, say, left) if tls else None
        gate = TlsGate(context, handshakes) if context else None
        server = _server(create_app(settings, handshakes=handshakes), gate)
        with call_on_interrupt(partial(setattr, server, "should_exit", True)):  # also before uvicorn listens to signals
            for line in said:
                say(line)
            server.run(sockets=[listener])


def _server(app: FastAPI, gate: TlsGate | None) -> uvicorn.Server:
    """The server of a collector; with a gate, it speaks TLS alone."""
    protocol = protocol_behind(Door())
    config = uvicorn.Config(
        app,
        http=protocol_with_tls(gate, protocol) if gate else protocol,
        loop="asyncio",  # as the gate needs it
        log_config=None,  # its lines are among ours
        log_level="warning",
        access_log=False,
    )
    return uvicorn.Server(config)


def _clean(data: Path, say: Notice) -> None:
    """Remove what killed collectors left, while none is there."""
    ingest.clean(data)
    for line in live.clean(data):
        say(line)


def _quiet_interrupt() -> contextlib.suppress:
    """A context in which Ctrl-C ends the service without a traceback."""
    return contextlib.suppress(KeyboardInterrupt)


def _create_token(port: int, data: Path) -> tuple[str, Path]:
    """A new token, or that of a killed collector, and the file where agents find it. Raises: ResourceError."""
    secret = left_token(port) or make_up_token()
    with ingest.disk_errors(data):
        return secret, leave_token(port, secret)


def _raise_descriptor_limit() -> None:
    """Allow as many open files as the system permits: each connection and each segment needs one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def parse_listen(text: str) -> tuple[str, int]:
    """Return address and port of `ADDRESS:PORT`. Raises: InputError."""
    address, colon, port = text.rpartition(":")
    address = address.removeprefix("[").removesuffix("]")
    if not colon or not address or not port.isdecimal() or int(port) > 65535:
        raise InputError(f"{text!r} is no address to listen at", f"give ADDRESS:PORT, such as {DEFAULT_LISTEN}")
    return address, int(port)


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def open_listener(address: str, port: int) -> socket.socket:
    """Return a listening socket. Raises: ResourceError if the port is in use; InputError, PrivilegeError."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, port), family=family, backlog=1024)
    except PermissionError:
        raise PrivilegeError(f"port {port} needs root", "choose one above 1023") from None
    except socket.gaierror:
        raise InputError(f"no address {address}", "give one of this machine's addresses") from None
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise ResourceError(f"cannot listen at {address}:{port}: {reason}", _remedy(port)) from None


def _remedy(port: int) -> str:
    return f"choose another port with --listen, or find what uses it: ss -ltnp 'sport = :{port}'"


def _listener_text(listener: socket.socket) -> str:
    address, port = listener.getsockname()[:2]
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
