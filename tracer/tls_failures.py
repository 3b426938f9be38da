"""What an operator reads when TLS to a collector fails: what is wrong, and what to do.

OpenSSL says it in codes: of a certificate that this side does not accept (X509_V_ERR_…), and of an alert by which the
other side refuses ours. Where there is none, because one side speaks TLS and the other HTTP, or because a reset
overtook the alert, the server is asked once more without sending it anything.

Source: RFC 8446 §6.2 (alerts); OpenSSL, x509_vfy.h.
"""

import socket
import ssl
import time
from dataclasses import dataclass
from http.client import HTTPException
from urllib.parse import urlsplit

from tracer.tls import NO_TLS

PROBE_SECONDS = 1.0
"""For an alert to arrive after a handshake."""
PORTS = {"http": 80, "https": 443}
NOT_YET_VALID, EXPIRED, WRONG_NAME, WRONG_ADDRESS = 9, 10, 62, 64
UNKNOWN_AUTHORITY = (2, 18, 19, 20, 21, 7)
"""No issuer, self-signed, self-signed in the chain, no local issuer, unable to verify, wrong signature."""
ALERTS = {
    "CERTIFICATE_REQUIRED": ("it lets in only agents with a certificate", "give --bundle, or --cert and --key"),
    "UNKNOWN_CA": (
        "this agent's certificate is of an authority that it does not trust",
        "copy the collector's agent.pem here again, or give it this authority: --ca",
    ),
    "CERTIFICATE_EXPIRED": (
        "this agent's certificate has expired, or the clock of one of the two is wrong",
        "renew it (tracer collect --make-ca does, in agent.pem), or set the clock",
    ),
    "BAD_CERTIFICATE": ("it does not accept this agent's certificate", "copy the collector's agent.pem here again"),
    "UNSUPPORTED_CERTIFICATE": (
        "this agent's certificate is not one of clients",
        "give one that is for clients (extended key usage clientAuth)",
    ),
    "HANDSHAKE_FAILURE": ("it lets in only agents with a certificate", "give --bundle, or --cert and --key"),
    "PROTOCOL_VERSION": ("it and this agent have no version of TLS in common", "let it speak TLS 1.2 or later"),
}
"""Ends of the names of alerts."""

ENDED = (
    ConnectionAbortedError,
    ConnectionResetError,
    BrokenPipeError,
    ssl.SSLEOFError,
    ssl.SSLZeroReturnError,
    HTTPException,
)
"""The other side ended a connection that was open, or answered what is no HTTP."""

Trouble = tuple[str, str]
"""What is wrong, and what to do."""


@dataclass(frozen=True, slots=True)
class TlsFailures:
    """The attempts of an agent to reach its collector that failed for the sake of TLS, since it was started."""

    count: int = 0
    last_ns: int = 0  # by the host's clock
    last: str = ""  # what was wrong then, and what to do

    def with_one_more(self, trouble: Trouble, at_ns: int) -> "TlsFailures":
        """These and another one."""
        return TlsFailures(self.count + 1, at_ns, "; ".join(trouble))

    def joined_with(self, other: "TlsFailures") -> "TlsFailures":
        """These and those; the last is the later one."""
        later = max(self, other, key=lambda each: each.last_ns)
        return TlsFailures(self.count + other.count, later.last_ns, later.last)


NO_FAILURES = TlsFailures()


def tls_trouble(error: BaseException, url: str, context: ssl.SSLContext | None) -> Trouble | None:
    """Why a request failed, if it is for the sake of TLS, or for the want of it.

    Arguments: `context`, with which the connection was opened; None for plain HTTP.
    """
    found = _ssl_error(error)
    if found is None and isinstance(error, ENDED):
        found = _error_of_probe(url, context)
        if context is None and found is None:
            return _speaks_tls(url)
    return None if found is None else _in_words(found, url)


def _in_words(error: ssl.SSLError, url: str) -> Trouble | None:
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _of_certificate(error, urlsplit(url).hostname or "")
    if reason in NO_TLS:
        return "what answers there does not speak TLS", f"give http://{urlsplit(url).netloc}, or have it use TLS"
    for end, trouble in ALERTS.items():
        if reason.endswith(end):
            return trouble
    return f"TLS failed ({reason.replace('_', ' ').lower() or error})", "see the collector's messages"


def _of_certificate(error: ssl.SSLCertVerificationError, name: str) -> Trouble:
    now = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    match error.verify_code:
        case code if code in UNKNOWN_AUTHORITY:
            return (
                "its certificate is of an authority that is not trusted here",
                "give the authority's: --bundle agent.pem, or --ca ca.pem, as the collector wrote them",
            )
        case code if code in (WRONG_NAME, WRONG_ADDRESS):
            return (
                f"its certificate does not name {name}",
                f"use a name that it has, or have it name this one: tracer collect --tls-name {name}",
            )
        case code if code == EXPIRED:
            return (
                f"its certificate has expired by this host's clock, {now}",
                "renew it there, or set this host's clock (timedatectl)",
            )
        case code if code == NOT_YET_VALID:
            return (
                f"its certificate is not valid yet by this host's clock, {now}",
                "set this host's clock (timedatectl), or the collector's",
            )
    return f"its certificate is not accepted ({error.verify_message})", "have the collector use another"


def _ssl_error(error: BaseException | None) -> ssl.SSLError | None:
    """The error of TLS because of which another was raised."""
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return None if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError) else error
        error = error.__cause__ or error.__context__
    return None


def _error_of_probe(url: str, context: ssl.SSLContext | None) -> ssl.SSLError | None:
    """The alert that a server of TLS sends to who opens a connection; None if it sends none."""
    if context is None:
        return None
    parsed = urlsplit(url)
    address = (parsed.hostname or "", parsed.port or PORTS[parsed.scheme])
    try:
        with (
            socket.create_connection(address, PROBE_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=parsed.hostname) as connection,
        ):
            connection.recv(1)
    except OSError as error:
        return _ssl_error(error)
    return None


def _speaks_tls(url: str) -> Trouble | None:
    """What to do if a server to which plain HTTP was sent speaks TLS; nothing of it is believed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    parsed = urlsplit(url)
    address = (parsed.hostname or "", parsed.port or PORTS[parsed.scheme])
    try:
        with socket.create_connection(address, PROBE_SECONDS) as plain, context.wrap_socket(plain):
            pass
    except ssl.SSLError as error:
        if "ALERT" not in (error.reason or ""):
            return None
    except OSError:
        return None
    return (
        "it speaks TLS, and was sent plain HTTP",
        f"give https://{parsed.netloc}, and --bundle or --ca",
    )
