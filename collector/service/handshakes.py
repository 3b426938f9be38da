"""Connections that TLS did not let in, by reason: counted for `/metrics`, and said in the log.

An agent with a wrong certificate cannot report, so the collector has to say that somebody tried.
"""

import logging
import ssl
import threading
from collections import Counter

_log = logging.getLogger("twintap.collector")

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
    "no_certificate": "no certificate was shown; agents need --bundle agent.pem, a browser operator.p12",
    "other_authority": "a certificate of another authority was shown; copy agent.pem there again",
    "expired": "an expired certificate was shown, or this host's clock is wrong; copy agent.pem there again",
    "not_valid_yet": "a certificate was shown that is not valid yet by this host's clock; set the clocks",
    "wrong_purpose": "a certificate was shown that is not one of clients; give agents agent.pem",
    "plain_http": "plain HTTP was sent to this port; have the other side use https",
    "no_tls": "what was sent to this port is no TLS",
    "old_tls": "the other side has no TLS 1.2",
    "not_trusted": "the other side does not trust this collector; give it --bundle agent.pem, or --ca ca.pem",
    "other": "TLS failed",
}


class Handshakes:
    """The handshakes that failed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def note(self, error: ssl.SSLError) -> None:
        """Count one; the first, the tenth, the hundredth … of a reason is said. Those cut off are none."""
        if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            return
        reason = refusal_reason(error)
        with self._lock:
            self._counts[reason] += 1
            count = self._counts[reason]
        if str(count).strip("0") == "1":
            detail = f" ({error.reason or error})" if reason == "other" else ""
            times = f" ({count:,} times)" if count > 1 else ""
            _log.warning("a connection was refused: %s%s%s", WORDS[reason], detail, times)

    def counts(self) -> dict[str, int]:
        """How many failed, by reason."""
        with self._lock:
            return {reason: self._counts[reason] for reason in WORDS}


def refusal_reason(error: ssl.SSLError) -> str:
    """Why a handshake failed, as a key of `WORDS`."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return OF_VERIFICATION.get(error.verify_code, "other_authority")
    reason = error.reason or ""
    return next((found for end, found in OF_TLS.items() if reason.endswith(end)), "other")
