"""`tracer collect`: run the collector service that agents send to."""

import contextlib
import ipaddress
import os
import socket
from pathlib import Path

import click
import uvicorn

from collector import ingest, live
from collector.app import create_app
from collector.commands.naming_options import naming_options, operators_names
from collector.settings import CollectorSettings
from tracer.errors import InputError, PrivilegeError, ResourceError

DEFAULT_LISTEN = "127.0.0.1:8710"


@click.command("collect")
@click.option(
    "--data", type=click.Path(path_type=Path, file_okay=False), required=True, help="Where segments and traces go"
)
@click.option(
    "--listen", default=DEFAULT_LISTEN, show_default=True, metavar="ADDRESS:PORT", help="Where agents send to."
)
@click.option("--token", default="", envvar="TWINTAP_TOKEN", show_envvar=True, help="Agents must give the same.")
@click.option(
    "--live-window",
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    type=click.FloatRange(0, 600),
    help="Keep a trace of so much of each session's newest traffic; 0 for none.",
)
@click.option(
    "--live-mib",
    default=64,
    show_default=True,
    type=click.IntRange(1, 128),
    help="Segments that a live trace is made of; with more, it is shorter.",
)
@naming_options
def command(
    *,
    data: Path,
    listen: str,
    token: str,
    live_window: float,
    live_mib: int,
    own_services: Path | None,
    names: tuple[str, ...],
) -> None:
    """Receive segments from agents, and make traces of them, until Ctrl-C.

    Elsewhere than on loopback it listens only with a token. `/docs` describes the HTTP interface.
    """
    address, port = parse_listen(listen)
    if not token and not is_loopback(address):
        raise InputError(f"{listen} can be reached from other machines", "give --token, or set TWINTAP_TOKEN")
    called = operators_names(own_services, names)
    with ingest.disk_errors(data):
        data.mkdir(parents=True, exist_ok=True)
        ingest.clean(data)
        live.clean(data)
    listener = open_listener(address, port)
    app = create_app(CollectorSettings(data, token, live_window, live_mib << 20, names=called))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
    click.echo(f"tracer: collecting at http://{_shown(listener)} into {data}", err=True)
    with listener, contextlib.suppress(KeyboardInterrupt):  # it has shut down in order before it passes the signal on
        server.run(sockets=[listener])


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


def _shown(listener: socket.socket) -> str:
    address, port = listener.getsockname()[:2]
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
