"""TLS between agents, collector and browsers: contexts from files that may be replaced while they are used.

A client trusts the authority that it was given, or else those of the system, and shows a certificate if it has one. A
server shows its certificate, and lets nobody in without one of the authority that it was given. Both are at least TLS
1.2 and check names; nothing here switches a check off.

Files are read again where another connection is opened after they changed. What is unusable then (half written, a key
that does not fit) leaves what was read before in use.

A *bundle* is one file with all that an agent needs; `tracer collect --make-ca` writes it:

    Collector: https://10.0.0.5:8710
    Token: …
    -----BEGIN CERTIFICATE-----      the agent's
    -----BEGIN PRIVATE KEY-----      of it
    -----BEGIN CERTIFICATE-----      the authority's

Lines outside of the blocks are ignored by whatever else reads PEM, so `curl --cert agent.pem` takes it as it is.
Source: RFC 7468 §2 (text before and between blocks).
"""

import os
import re
import ssl
import stat
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from logging import WARNING
from pathlib import Path

from tracer.errors import InputError
from tracer.service_log import Notice

CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n?", re.DOTALL)
LINE = re.compile(r"^(Collector|Token): *(\S+) *$", re.MULTILINE)
NO_TLS = ("HTTP_REQUEST", "WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
"""Reasons for which what was received is no record of TLS, so an alert would not be understood."""
OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(slots=True)
class Peer:
    """The other side of a connection whose handshake begins."""

    address: str = ""
    is_refused: bool = False  # for what it showed, or did not


PEER: ContextVar[Peer] = ContextVar("PEER")
"""Set by a server before a handshake, so that what is said of a refusal names the other side."""
Refuse = Callable[[ssl.SSLError, str], None]
"""Takes a handshake that failed, and the address of the other side; empty = not known."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """What a bundle holds beside certificates."""

    url: str
    token: str
    authorities: str  # PEM


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where one side of a connection has its certificates, as PEM. `bundle` is in place of the others."""

    ca: Path | None = None  # authorities that are trusted; None = the system's
    cert: Path | None = None  # what this side shows
    key: Path | None = None  # of it; None = in the same file
    bundle: Path | None = None

    def paths(self) -> list[Path]:
        """The files."""
        return [path for path in (self.ca, self.cert, self.key, self.bundle) if path is not None]

    def stamp(self) -> tuple[tuple[int, int, int] | None, ...]:
        """A value that is another after a file was replaced or written to."""
        return tuple(_stamp(path) for path in self.paths())

    def open_secrets(self) -> list[Path]:
        """Those of them that hold a private key and can be read by others than their owner."""
        own = (self.bundle, self.key or self.cert)
        return [path for path in own if path is not None and _is_open(path)]


SYSTEM = TlsFiles()
"""No certificate of its own, and the system's authorities."""


def read_bundle(path: Path) -> Bundle:
    """A bundle. Raises: InputError."""
    text = _text(path)
    lines = dict(LINE.findall(text))
    certificates = CERTIFICATE.findall(text)
    if len(certificates) < 2:
        raise InputError(f"{path} is no bundle of certificates", "give the agent.pem of tracer collect --make-ca")
    return Bundle(lines.get("Collector", ""), lines.get("Token", ""), "".join(certificates[1:]))


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """What connections to a server are opened with. Raises: InputError for a file that cannot be used."""
    if files.bundle is not None:
        context = _trusting(files.bundle, read_bundle(files.bundle).authorities)
        _load_own(context, files.bundle, None)
        return context
    context = ssl.create_default_context() if files.ca is None else _trusting(files.ca, _text(files.ca))
    if files.cert is not None:
        _load_own(context, files.cert, files.key)
    return context


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """What connections of clients are taken with; with `ca`, only of those that show a certificate of it.

    Raises: InputError for a file that cannot be used, or without a certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if files.cert is None:
        raise InputError("a server of TLS needs a certificate", "give --cert FILE")
    _load_own(context, files.cert, files.key)
    if files.ca is not None:
        _trust(context, files.ca, _text(files.ca))
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def following_context(files: TlsFiles, on_refusal: Refuse, notice: Notice) -> ssl.SSLContext:
    """A server's context that follows its files: each handshake uses what they hold by then.

    Arguments: `on_refusal` gets each handshake that failed; `notice`, a line for the operator on what cannot be read.
    Raises: as `server_context`.
    """
    context, stamp = server_context(files), files.stamp()
    newest = context

    def follow(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        nonlocal newest, stamp
        if (now := files.stamp()) != stamp:
            stamp = now
            try:
                newest = server_context(files)
                notice("the certificates were replaced; new connections use them")
            except InputError as error:
                notice(f"the certificates that were used so far stay in use: {error}", WARNING)
        connection.context = newest

    # OpenSSL calls it for every handshake, also without a name; the new context brings its certificate and authorities.
    context.sni_callback = follow
    context.sslobject_class = _counting(on_refusal)
    return context


def _counting(on_refusal: Refuse) -> type[ssl.SSLObject]:
    """Connections that report a handshake which fails, and send the alert that says why: asyncio does neither."""

    class Connection(ssl.SSLObject):
        failure: ssl.SSLError | None = None
        peer: Peer | None = None

        def do_handshake(self) -> None:
            self.peer = self.peer or PEER.get(Peer())  # later calls are of the event loop, without its context
            if self.failure is not None:
                raise self.failure
            try:
                super().do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise
            except ssl.SSLError as error:
                self.peer.is_refused = True
                on_refusal(error, self.peer.address)
                self.failure = error
                if error.reason in NO_TLS:
                    raise
                # asyncio then sends what waits, which is the alert; it fails when the other side goes on, or closes.
                raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "an alert is to be sent") from error

    return Connection


def _trusting(path: Path, authorities: str) -> ssl.SSLContext:
    """A client's context that trusts these authorities alone. Raises: InputError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _trust(context, path, authorities)
    return context


def _trust(context: ssl.SSLContext, path: Path, authorities: str) -> None:
    """Raises: InputError."""
    try:
        context.load_verify_locations(cadata=authorities)
    except (ssl.SSLError, ValueError):
        raise InputError(f"{path} holds no certificate of an authority", "give it as PEM, as ca.pem is") from None


def _load_own(context: ssl.SSLContext, cert: Path, key: Path | None) -> None:
    """Show this certificate. Raises: InputError."""
    place = key or cert
    _text(cert), _text(place)  # for a plain error

    def no_password() -> str:
        raise InputError(
            f"the private key in {place} is encrypted", "store it without a passphrase, for its owner only"
        )

    try:
        context.load_cert_chain(cert, key, password=no_password)
    except ssl.SSLError as error:
        if error.reason in ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH"):
            raise InputError(f"the private key in {place} does not fit {cert}", "give its own") from None
        what = f"{cert} and {key} hold" if key else f"{cert} holds"
        raise InputError(f"{what} no certificate with its private key", "give both as PEM: --cert, --key") from None


def _text(path: Path) -> str:
    """A file's text. Raises: InputError."""
    try:
        return path.read_text("utf-8", "surrogateescape")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", "check the path and whose it is") from None


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _is_open(path: Path) -> bool:
    try:
        found = os.stat(path)
    except OSError:
        return False
    return bool(found.st_mode & OTHERS)


def open_secret_lines(files: TlsFiles) -> Iterator[str]:
    """A line for the operator on each private key that others can read."""
    for path in files.open_secrets():
        yield f"others on this machine can read the private key in {path}; chmod 600 {path}"
