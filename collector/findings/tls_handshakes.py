"""Findings about TLS handshakes that failed, as an alert shows (`connections.tls_alert`).

An alert is in the clear until its sender encrypts: up to TLS 1.2 during the whole handshake, in TLS 1.3 only a server's
before its hello. Of an encrypted one it is seen that the client sent it instead of ending the handshake, but not why.
"""

from collections.abc import Iterable
from typing import Any

import polars as pl

from collector.findings.finding import Finding, frame, listing, times
from collector.findings.observations import Observations

COLUMNS = (
    *("connection_id", "client_host", "server_host", "server_addr", "server_port", "first_host_ns"),
    *("tls_server_name", "tls_versions_offered", "tls_alert", "tls_alert_from"),
)
UNTRUSTED = frozenset(
    {
        *("unknown_ca", "bad_certificate", "certificate_expired", "certificate_unknown", "unsupported_certificate"),
        *("certificate_revoked", "encrypted"),
    }
)
"""Alerts of a client that did not accept the server's certificate, or may not have."""
REMEDIES = {
    ("client", "encrypted"): "the reason is encrypted: see the client's log; most often it does not trust the server's "
    "certificate, or the name is not in it (openssl s_client -connect {place} -servername NAME)",
    (
        "server",
        "handshake_failure",
    ): "client and server have no cipher suite or group in common, or the server requires "
    "a certificate of the client: compare both ends' settings",
    ("server", "protocol_version"): "the client offers TLS {versions}, which the server does not accept: update one of "
    "them, or change the server's lowest version",
    ("server", "unrecognized_name"): "the server has no certificate for this name: see its virtual hosts",
    ("server", "no_application_protocol"): "the server speaks none of the protocols that the client offers (ALPN)",
}
"""By sender and alert."""
CLIENT_DISTRUSTS = (
    "the client does not accept the server's certificate: see who signed it, its names and its dates "
    "(openssl s_client -connect {place} -servername NAME), and the client's store of trusted certificates"
)
OTHERWISE = "see the logs of both ends for this connection"


def find(seen: Observations) -> Iterable[Finding]:
    """One finding for each server's host, sender and alert."""
    if seen.connections is None:
        return
    parts = (part.select(COLUMNS).filter(part["tls_alert"].is_valid()) for part in seen.connections(COLUMNS))
    failed = [frame(part) for part in parts if part.num_rows]
    rows = pl.concat(failed) if failed else pl.DataFrame()
    if rows.is_empty():
        return
    keys = [pl.coalesce("server_host", "server_addr").alias("where"), "tls_alert_from", "tls_alert"]
    for (where, sender, alert), group in rows.group_by(keys, maintain_order=True):
        yield _finding(str(where), str(sender), str(alert), group.sort("first_host_ns").rows(named=True))


def _finding(where: str, sender: str, alert: str, rows: list[dict[str, Any]]) -> Finding:
    first = rows[0]
    clients = sorted({str(row["client_host"] or "a host that was not captured") for row in rows})
    names = sorted({row["tls_server_name"] for row in rows} - {None})
    places = [f"{where}:{port}" for port in sorted({row["server_port"] for row in rows})]
    said = "an encrypted alert" if alert == "encrypted" else alert
    asked = f" ({listing(names)})" if names else ""
    is_distrust = sender == "client" and alert in UNTRUSTED
    remedy = REMEDIES.get((sender, alert), CLIENT_DISTRUSTS if is_distrust else OTHERWISE)
    return Finding(
        severity="warning",
        kind="tls_handshake_failed",
        host=first["server_host"],
        touches=frozenset(clients),
        connection_id=first["connection_id"],
        count=len(rows),
        failed_count=len(rows),
        text=f"{times(len(rows), 'TLS handshake')} of {listing(clients)} with {listing(places)}{asked} failed: the "
        f"{sender} sent {said}",
        remedy=remedy.format(place=places[0], versions=first["tls_versions_offered"] or "?"),
    )
