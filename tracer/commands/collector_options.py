"""The options that say to which collector an agent sends, and what opens it."""

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from tracer.collector_choice import split_urls
from tracer.errors import InputError
from tracer.tls import TlsFiles, client_context, open_secret_lines, read_bundle
from tracer.tokens import first_line, read_token, token_options

FILE = click.Path(path_type=Path)
_OPTIONS = (
    click.option(
        "--collector",
        metavar="URL[,URL…]",
        help="Send segments to a collector (`tracer collect`); of several, to the one that this host's name chooses, "
        "and to the next while that takes none.",
    ),
    click.option(
        "--collector-file",
        type=FILE,
        metavar="FILE",
        help="Read the URL, or the URLs, from the first line of FILE, and again while the agent runs.",
    ),
    click.option(
        "--bundle",
        type=FILE,
        metavar="FILE",
        help="The agent.pem of `tracer collect --make-ca`: URL, token and authority of the collector, a certificate.",
    ),
    click.option(
        "--ca", type=FILE, metavar="FILE", help="Trust only these authorities (PEM).  [default: the system's]"
    ),
    click.option("--cert", type=FILE, metavar="FILE", help="Show this certificate to the collector (PEM)."),
    click.option(
        "--key", type=FILE, metavar="FILE", help="The certificate's private key.  [default: in the same file]"
    ),
    click.option(
        "--plain-http",
        is_flag=True,
        help="Send without encryption to another machine: whoever is on the way reads all of it, the token too.",
    ),
)


@dataclass(frozen=True, slots=True)
class CollectorAccess:
    """Where a collector is, and what opens it."""

    url: str  # or several, separated by commas
    token: str
    token_file: Path | None
    url_file: Path | None
    tls: TlsFiles

    def files(self) -> list[Path]:
        """The files that are read again while an agent runs."""
        return [path for path in (self.token_file, self.url_file, *self.tls.paths()) if path is not None]


def collector_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add them; the command takes them as keywords, and gives them to `collector_access`."""
    command = token_options("The collector's token.")(command)
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def collector_access(
    *,
    collector: str | None,
    collector_file: Path | None,
    bundle: Path | None,
    ca: Path | None,
    cert: Path | None,
    key: Path | None,
    plain_http: bool,
    token: str | None,
    token_file: Path | None,
    warn: Callable[[str], None],
) -> CollectorAccess | None:
    """The collector that the options give; None if they give none.

    Raises: InputError for files that cannot be used, options that exclude each other, or what is sent in the clear.
    """
    if collector and collector_file:
        raise InputError("--collector and --collector-file are both given", "give one of them")
    if bundle and (ca or cert or key):
        raise InputError("--bundle has its own certificates", "give --bundle alone, or --ca, --cert and --key")
    if key and not cert:
        raise InputError("--key is of a certificate, and there is none", "give --cert, too")
    of_bundle = read_bundle(bundle) if bundle else None
    url, url_file = collector or "", collector_file
    if collector_file:
        url = first_line(collector_file, "address")
    elif of_bundle and not url:
        url, url_file = of_bundle.url, bundle
        if not url:
            raise InputError(f"{bundle} names no collector", "give --collector URL")
    if not url:
        return None
    tls = TlsFiles(ca, cert, key, bundle)
    for each in split_urls(url):
        check_encryption(each, plain_http=plain_http)
    client_context(tls)  # what cannot be used is said now
    for line in open_secret_lines(tls):
        warn(line)
    secret = read_token(token, token_file) or (of_bundle.token if of_bundle else "")
    return CollectorAccess(url, secret, token_file, url_file, tls)


def check_encryption(url: str, *, plain_http: bool) -> None:
    """Raises: InputError if what is sent there can be read on the way, and nobody wanted that."""
    parsed = urlsplit(url)
    if parsed.scheme == "https" or plain_http or _is_here(parsed.hostname or ""):
        return
    raise InputError(
        f"{url} is on another machine and not encrypted: the token and all packets could be read on the way",
        "give an https URL (a collector with --make-ca has one), or --plain-http if the network is your own",
    )


def _is_here(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"
