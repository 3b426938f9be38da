"""The options of `tracer collect` that say how its connections are protected, and whom they let in."""

import contextlib
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from logging import WARNING
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from collector.service.authority import AuthorityFiles, check_names, own_token, prepare_authority
from collector.service.handshakes import Handshakes
from collector.service.ingest import disk_errors
from tracer import _capture
from tracer.errors import InputError
from tracer.service_log import Notice
from tracer.tls import TlsFiles, following_context, open_secret_lines

FILE = click.Path(path_type=Path)
RENEWAL_SECONDS = 6 * 3600
"""Between looks whether a certificate of our own authority is about to expire: it has a third of its year left then."""
_OPTIONS = (
    click.option(
        "--make-ca",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="Use TLS with certificates of an authority in DIR, which is made if it is not there. DIR/agent.pem is all "
        "that an agent needs.",
    ),
    click.option(
        "--tls-name",
        "tls_names",
        multiple=True,
        metavar="NAME",
        help="With --make-ca: another name or address under which agents reach this collector; the first is the one in "
        "agent.pem. May be given again.",
    ),
    click.option("--cert", type=FILE, metavar="FILE", help="Use TLS with this certificate (PEM)."),
    click.option(
        "--key", type=FILE, metavar="FILE", help="The certificate's private key.  [default: in the same file]"
    ),
    click.option(
        "--ca", type=FILE, metavar="FILE", help="Let in only clients with a certificate of this authority (PEM)."
    ),
    click.option("--no-client-cert", is_flag=True, help="With TLS, let in clients without a certificate, by token."),
    click.option(
        "--plain-http",
        is_flag=True,
        help="Without TLS beyond loopback: whoever is on the way reads all of it, the token too.",
    ),
)


class CollectorTls(Struct, frozen=True):
    """How a collector's connections are protected."""

    files: TlsFiles
    authority: Path | None = None  # the folder of its own one
    names: tuple[str, ...] = ()  # further ones, of its own certificate

    def token(self) -> str:
        """The token of its authority's folder; empty if it has none. Raises: ResourceError."""
        if self.authority is None:
            return ""
        with disk_errors(self.authority):
            return own_token(self.authority)


def tls_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add them; the command takes them as keywords, and gives them to `collector_tls`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def collector_tls(listen: str, given: dict[str, Any], *, is_local: bool) -> CollectorTls | None:
    """What the options say, which are removed from those that are given; None for plain HTTP.

    Raises: InputError for options that exclude each other, or what would be less safe than somebody asked for.
    """
    names = ("make_ca", "tls_names", "cert", "key", "ca", "no_client_cert", "plain_http")
    make_ca, tls_names, cert, key, ca, no_client_cert, plain_http = (given.pop(name) for name in names)
    _check_combination(make_ca, tls_names, cert, key, ca, no_client_cert=no_client_cert, plain_http=plain_http)
    if make_ca:
        made = AuthorityFiles(make_ca)
        return CollectorTls(TlsFiles(None if no_client_cert else made.ca, made.collector), make_ca, tls_names)
    if cert is None and not is_local and not plain_http:
        raise InputError(
            f"{listen} can be reached from other machines, and without TLS what agents send could be read on the way",
            "give --make-ca DIR, or --cert and --ca; --plain-http if the network is your own",
        )
    if cert and not ca and not no_client_cert and not is_local:
        raise InputError(
            f"{listen} can be reached from other machines, and no client's certificate is checked",
            "give --ca, the authority of the agents' certificates, or --no-client-cert",
        )
    return CollectorTls(TlsFiles(ca, cert, key)) if cert else None


def _check_combination(
    make_ca: Path | None,
    tls_names: tuple[str, ...],
    cert: Path | None,
    key: Path | None,
    ca: Path | None,
    *,
    no_client_cert: bool,
    plain_http: bool,
) -> None:
    """Raises: InputError for options that exclude each other."""
    if plain_http and (make_ca or cert):
        raise InputError("--plain-http is without TLS", "leave it out, or --make-ca and --cert")
    if make_ca and (cert or key or ca):
        raise InputError("--make-ca has its own certificates", "give --make-ca alone, or --cert, --key and --ca")
    if tls_names and not make_ca:
        raise InputError("--tls-name is for certificates that are made here", "give --make-ca DIR")
    if ca and no_client_cert:
        raise InputError("--ca asks clients for a certificate, --no-client-cert does not", "give one of them")
    if (key or ca or no_client_cert) and not (cert or make_ca):
        raise InputError("--key, --ca and --no-client-cert are for TLS", "give --make-ca DIR, or --cert FILE")
    check_names(tls_names)


def open_tls(
    tls: CollectorTls,
    listener: socket.socket,
    token: str,
    handshakes: Handshakes,
    say: Notice,
    left: contextlib.ExitStack,
) -> ssl.SSLContext:
    """The context of a collector that listens; certificates of its own authority are made now and while it runs.

    Arguments: `left` takes what is to be done when it ends.
    Raises: InputError, ResourceError for files that cannot be used.
    """
    if tls.authority is not None:
        address, port = listener.getsockname()[:2]
        names = _names(tls.names, str(address))
        prepare = partial(prepare_authority, tls.authority, names, f"https://{_in_url(names[0])}:{port}", token)
        with disk_errors(tls.authority):
            for line in prepare(datetime.now(UTC)):
                say(line)
        ended = threading.Event()
        threading.Thread(target=_renew, args=(prepare, ended, say), name="certificates", daemon=True).start()
        left.callback(ended.set)
    context = following_context(tls.files, handshakes.note, say)  # first of all whether they are keys and certificates
    for line in open_secret_lines(tls.files):
        say(line)
    return context


def _renew(prepare: Callable[[datetime], list[str]], ended: threading.Event, say: Notice) -> None:
    """Make certificates anew in time, until the collector ends."""
    while not ended.wait(RENEWAL_SECONDS):
        try:
            for line in prepare(datetime.now(UTC)):
                say(line)
        except (OSError, InputError) as error:
            say(f"certificates cannot be made anew: {error}", WARNING)


def _names(wanted: tuple[str, ...], address: str) -> tuple[str, ...]:
    """The names of a collector's certificate, that for agents first."""
    found = ipaddress.ip_address(address)
    if found.is_unspecified:
        here = [str(each) for each in _capture.host_addresses() if not each.is_link_local and not each.is_loopback]
        own = [*_host_names(), *sorted(here)]
    else:
        own = [address]
    return tuple(dict.fromkeys([*wanted, *own, "localhost", "127.0.0.1", "::1"]))


def _host_names() -> list[str]:
    """The names of this host, the longest first."""
    names = {socket.getfqdn(), socket.gethostname()} - {"", "localhost"}
    return sorted((name for name in names if name.isascii()), key=len, reverse=True)


def _in_url(name: str) -> str:
    return f"[{name}]" if ":" in name else name
