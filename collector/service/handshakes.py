"""Connections that TLS did not let in, by reason and address: counted, shown on the page of agents, and logged.

An agent with a wrong certificate cannot report, so the collector has to say that somebody tried. Anybody can make
refusals, so only the newest `MOST_KEPT` pairs of address and reason are kept, and few lines are logged.
"""

import logging
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

_log = logging.getLogger("twintap.collector")

MOST_KEPT = 100
LATE = "late"
CROWDED = "crowded"
OF_VERIFICATION = {9: "not_valid_yet", 10: "expired", 26: "wrong_purpose"}
"""X509_V_ERR_… of what clients show; any other is one of another authority. Source: OpenSSL, x509_vfy.h."""
OF_TLS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "no_certificate",
    "HTTP_REQUEST": "plain_http",
    "WRONG_VERSION_NUMBER": "no_tls",
    "UNSUPPORTED_PROTOCOL": "old_tls",
    "UNKNOWN_CA": "not_trusted",
    "CERTIFICATE_UNKNOWN": "not_trusted",
    "BAD_CERTIFICATE": "not_trusted",
    "CERTIFICATE_EXPIRED": "not_trusted",
}
"""Ends of the reasons of OpenSSL."""
WORDS = {
    "no_certificate": ("no certificate was shown", "agents need --bundle agent.pem, a browser operator.p12"),
    "other_authority": ("a certificate of another authority was shown", "copy agent.pem there again"),
    "expired": (
        "an expired certificate was shown, or this host's clock is wrong",
        "copy agent.pem there again",
    ),
    "not_valid_yet": ("a certificate was shown that is not valid yet by this host's clock", "set the clocks"),
    "wrong_purpose": ("a certificate was shown that is not one of clients", "give agents agent.pem"),
    "plain_http": ("plain HTTP was sent to this port", "have the other side use https"),
    "no_tls": ("what was sent to this port is no TLS", "find what connects from there"),
    "old_tls": ("the other side has no TLS 1.2", "let it speak TLS 1.2 or later"),
    "not_trusted": (
        "the other side does not trust this collector",
        "give it --bundle agent.pem, or --ca ca.pem",
    ),
    LATE: ("no TLS handshake was completed in time", "find what connects from there; an agent tries again by itself"),
    CROWDED: (
        "too many TLS handshakes were unfinished, and this was the oldest",
        "find what opens connections from there; an agent tries again by itself",
    ),
    "other": ("TLS failed", "see the other side's messages"),
}
"""By reason, what happened, and what to do."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The connections from one address that TLS refused for one reason."""

    address: str  # empty = not known
    reason: str  # a key of `WORDS`
    what: str
    remedy: str
    count: int
    first_ns: int  # by this host's clock
    last_ns: int


class Handshakes:
    """The handshakes that failed; safe to use from several threads."""

    def __init__(self, clock: Callable[[], int] = time.time_ns) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._last_ns: dict[str, int] = {}
        self._refusals: dict[tuple[str, str], Refusal] = {}  # in the order of their last times

    def note(self, error: ssl.SSLError, address: str = "") -> None:
        """Count one that failed. Those cut off are none."""
        if not isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            self.count(refusal_reason(error), address, str(error.reason or error))

    def count(self, reason: str, address: str, detail: str = "") -> None:
        """Count one; the first, the tenth, the hundredth … of a reason is logged. `detail`: in OpenSSL's words."""
        what, remedy = WORDS[reason]
        with self._lock:
            now_ns = self._clock()
            self._counts[reason] += 1
            self._last_ns[reason] = now_ns
            before = self._refusals.pop((address, reason), None)
            first_ns, count = (before.first_ns, before.count + 1) if before else (now_ns, 1)
            self._refusals[address, reason] = Refusal(address, reason, what, remedy, count, first_ns, now_ns)
            if len(self._refusals) > MOST_KEPT:
                del self._refusals[next(iter(self._refusals))]
            total = self._counts[reason]
        if str(total).strip("0") == "1":
            source = f" from {address}" if address else ""
            in_detail = f" ({detail})" if reason == "other" and detail else ""
            times = f" ({total:,} times)" if total > 1 else ""
            fields = {"address": address, "reason": reason, "count": total}
            _log.warning("a connection%s was refused: %s%s; %s%s", source, what, in_detail, remedy, times, extra=fields)

    def counts(self) -> dict[str, int]:
        """How many failed, by reason."""
        with self._lock:
            return {reason: self._counts[reason] for reason in WORDS}

    def last_ns(self) -> dict[str, int]:
        """When the last one failed, by the reasons that there were."""
        with self._lock:
            return dict(self._last_ns)

    def refusals(self) -> list[Refusal]:
        """Those that are kept, the newest first."""
        with self._lock:
            return list(reversed(self._refusals.values()))


def refusal_reason(error: ssl.SSLError) -> str:
    """Why a handshake failed, as a key of `WORDS`."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return OF_VERIFICATION.get(error.verify_code, "other_authority")
    reason = error.reason or ""
    return next((found for end, found in OF_TLS.items() if reason.endswith(end)), "other")
