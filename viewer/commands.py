"""`tracer view TRACE`: open a trace in the browser, until Ctrl-C."""

import errno
import ipaddress
import logging
import os
import signal
import socket
import ssl
import sys
import tempfile
import time
import webbrowser
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import FrameType

import click

from collector.queries import check_trace, open_series, open_trace
from tracer.commands.log_options import log_options
from tracer.errors import InputError, ResourceError
from tracer.scratch import remove_leftovers
from tracer.secret_rules import without_secrets
from tracer.service_log import hide, notice_to
from tracer.tls import TlsFiles, following_context, open_secret_lines
from tracer.tokens import leave_token, make_up_token, read_token, take_back
from viewer.access import Access
from viewer.app import make_viewer
from viewer.days.site import SeriesSite
from viewer.pages.context import Companions
from viewer.serving import Application, make_server
from viewer.tls_front import tls_front

LOG = logging.getLogger("twintap.viewer")
VARIABLE = "TWINTAP_VIEW_TOKEN"
"""Its own, so that a collector's token in the environment does not close the page."""
MAKE_ONE = "\0"
"""`--token` without a value."""
READING_SUMMARIES = "reading the summaries of this series"
MAKING_INDEX = "making the index of this trace, once"
QUIET_SECONDS = 0.5
"""Progress is not shown before this time."""


@click.command(short_help="Open a trace in the web viewer.")
@click.argument("trace", required=False)
@click.argument("others", nargs=-1, metavar="[OTHER]...")
@click.option(
    "--listen", default="127.0.0.1:8765", show_default=True, metavar="ADDR:PORT", help="Port 0: any free one."
)
@click.option(
    "--token",
    is_flag=False,
    flag_value=MAKE_ONE,
    metavar="[-]",
    help="Require a secret from those who open the page: a new one; `-` asks for it here. Needed to listen beyond this "
    "machine.",
)
@click.option(
    "--token-file", type=click.Path(path_type=Path), metavar="FILE", help="Read the token from the first line of FILE."
)
@click.option("--cert", type=click.Path(path_type=Path), metavar="FILE", help="Use TLS with this certificate (PEM).")
@click.option(
    "--key",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The certificate's private key.  [default: in the same file]",
)
@click.option(
    "--ca",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Let in only browsers with a certificate of this authority (PEM).",
)
@click.option(
    "--plain-http",
    is_flag=True,
    help="Without TLS beyond this machine: whoever is on the way reads all of it, the token too.",
)
@click.option(
    "--bench",
    "runs",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    metavar="FOLDER",
    help="A run of `tracer bench run` or `import`, or a folder of runs, to show beside the trace; may be given again.",
)
@click.option("--no-browser", is_flag=True, help="Print the URL, and do not open a browser.")
@log_options
def command(
    *,
    trace: str | None,
    others: tuple[str, ...],
    listen: str,
    token: str | None,
    token_file: Path | None,
    cert: Path | None,
    key: Path | None,
    ca: Path | None,
    plain_http: bool,
    runs: tuple[Path, ...],
    no_browser: bool,
) -> None:
    """Open TRACE (a directory or a URL) in the web viewer, until Ctrl-C. It can be compared there with each OTHER.

    Of a series (as `tracer replay --every` makes one) it shows the days. Without TRACE, the page takes captures.
    """
    for run in runs:
        if not run.is_dir():
            raise InputError(
                f"--bench {run} is a file",
                "give a run's folder; `tracer bench import FILE` makes one of warp's .csv.zst",
            )
    host, port = parse_listen(listen)
    secret = _secret(token, token_file)
    if secret is None and not is_loopback(host):
        raise InputError(f"--listen {listen} can be reached from other machines", "add --token, or listen on 127.0.0.1")
    context = _tls(listen, TlsFiles(ca, cert, key), plain_http=plain_http, is_local=is_loopback(host))
    for other in others:
        check_trace(other)
    hide(secret or "")
    notice = notice_to(LOG)
    for line in remove_leftovers(Path(tempfile.gettempdir()), *([Path(trace).parent] if trace else [])):
        notice(line)
    with _listening(host, port) as listener:  # first: an index takes long, only to find the port in use
        site, close = _site(trace, Access(secret, secure=context is not None), Companions(runs, others))
        port, left = listener.getsockname()[1], None
        try:
            name = f"[{host}]" if ":" in host else host
            url = f"{'https' if context else 'http'}://{name}:{port}/"
            left = _leave(port, secret) if token == MAKE_ONE and secret else None
            signal.signal(signal.SIGTERM, _stop)
            click.echo(without_secrets(f"{trace or 'no trace yet'}: {url}  (Ctrl-C ends)"))
            if left is not None and secret:
                _say_token(left, secret)
            sys.stdout.flush()
            if not no_browser and _has_display():
                webbrowser.open(url)
            with tls_front(listener, context) if context else nullcontext(listener) as taken:
                make_server(site, taken).run()
        finally:
            close()
            if left is not None and secret:
                take_back(left, secret)


def _site(trace: str | None, access: Access, companions: Companions) -> tuple[Application, Callable[[], None]]:
    """What answers, and what ends it. Raises: InputError."""
    series = open_series(trace, progress_printer(READING_SUMMARIES)) if trace else None
    if series is not None:
        if companions.traces or companions.runs:
            raise InputError(
                "a series is shown by itself", "compare the trace of a period: tracer view SERIES/PERIOD OTHER"
            )
        return SeriesSite(series, access), lambda: None
    opened = open_trace(trace, progress_printer()) if trace else None
    revisions, uploads = make_viewer(opened, access, companions)
    return revisions, uploads.close


def _secret(token: str | None, file: Path | None) -> str | None:
    """The token that opens the page; None if it is open to this machine. Raises: InputError."""
    if token == MAKE_ONE and file is None:
        return make_up_token()
    given = read_token(token, file, VARIABLE)
    return given or None


def _tls(listen: str, files: TlsFiles, *, plain_http: bool, is_local: bool) -> ssl.SSLContext | None:
    """What browsers' connections are taken with; None for plain HTTP.

    Raises: InputError for files that cannot be used, or what could be read on the way and nobody wanted that.
    """
    if files.cert is None:
        if files.key or files.ca:
            raise InputError("--key and --ca are for TLS", "give --cert FILE, too")
        if is_local or plain_http:
            return None
        raise InputError(
            f"--listen {listen} can be reached from other machines, and the page could be read on the way",
            "give --cert FILE (a collector's DIR/collector.pem will do), or --plain-http if the network is your own",
        )
    if plain_http:
        raise InputError("--plain-http is without TLS", "leave it out, or --cert")

    notice = notice_to(LOG)
    context = following_context(files, lambda *_: None, notice)  # first of all whether they are keys and certificates
    for line in open_secret_lines(files):
        notice(line)
    return context


def _leave(port: int, secret: str) -> Path:
    """Put the token that was made up where only its user finds it. Raises: ResourceError."""
    try:
        return leave_token(port, secret, "viewer")
    except OSError as error:
        raise ResourceError(f"the token cannot be written: {error.strerror}", "give one by --token-file") from None


def _say_token(place: Path, secret: str) -> None:
    """Say where the token is; on a terminal, show it, too."""
    click.echo(f"the page asks for a token; it is in {place}")
    if sys.stdout.isatty():
        click.echo(f"token {secret}")


def parse_listen(text: str) -> tuple[str, int]:
    """`ADDR:PORT` or `[ADDR]:PORT` in two.

    Raises: `InputError` if it is neither.
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise InputError(f"--listen {text} is not ADDR:PORT", "for example --listen 127.0.0.1:8765")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def progress_printer(what: str = MAKING_INDEX) -> Callable[[float], None]:
    """A function that prints progress if it takes long: on a terminal the share completed, in place; elsewhere one
    line."""
    begin, printed = time.monotonic(), False

    def print_progress(share: float) -> None:
        nonlocal printed
        if not printed and (share == 1 or time.monotonic() - begin < QUIET_SECONDS):
            return
        if sys.stderr.isatty():
            click.echo(f"\r{what}: {share:4.0%}", nl=share == 1, err=True)
        elif not printed:
            click.echo(what + ("; about a second for each million packets" if what == MAKING_INDEX else ""), err=True)
        printed = True

    return print_progress


def _listening(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise _listen_error(error, host, port) from None


def _listen_error(error: OSError, host: str, port: int) -> ResourceError:
    if error.errno == errno.EADDRINUSE:
        return ResourceError(f"port {port} of {host} is in use", f"choose another: --listen {host}:{port + 1}")
    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
    return ResourceError(
        f"cannot listen on {host}:{port} ({reason})", "choose an address of this machine and a free port"
    )


def _has_display() -> bool:
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _stop(signal_number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)
