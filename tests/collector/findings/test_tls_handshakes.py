"""Which failed TLS handshakes are reported, and how they are worded."""

from typing import Any

import pyarrow as pa
import pytest

from collector.findings import tls_handshakes
from collector.findings.finding import Finding
from collector.hops.tls_words import handshake_words, line_words, tls_lines
from collector.trace.schema import CONNECTIONS

PLAIN: dict[str, Any] = {
    "connection_id": 1,
    "client_host": "client",
    "server_host": "web",
    "server_addr": "10.0.0.2",
    "server_port": 443,
    "first_host_ns": 5,
}
OF_13 = PLAIN | {
    "tls_server_name": "api.example",
    "tls_alpn_offered": "h2, http/1.1",
    "tls_versions_offered": "1.3, 1.2",
    "tls_version": "1.3",
    "tls_cipher": "TLS_AES_128_GCM_SHA256",
    "tls_resumption": "psk",
    "tls_evidence": "both",
}


def table(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([dict(row) for row in rows], schema=CONNECTIONS)


class Seen:
    def __init__(self, *rows: dict[str, Any]) -> None:
        self.connections = lambda _: iter([table(*rows), table()])


def findings_of(*rows: dict[str, Any]) -> list[Finding]:
    return list(tls_handshakes.find(Seen(*rows)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("alert", "sender", "said", "remedy"),
    [
        ("unknown_ca", "client", "the client sent unknown_ca", "does not accept the server's certificate"),
        ("encrypted", "client", "the client sent an encrypted alert", "the reason is encrypted"),
        ("handshake_failure", "server", "the server sent handshake_failure", "no cipher suite"),
        ("protocol_version", "server", "the server sent protocol_version", "offers TLS 1.3, 1.2"),
        ("internal_error", "server", "the server sent internal_error", "logs of both ends"),
    ],
)
def test_a_fatal_alert_is_a_finding_with_what_to_do(alert: str, sender: str, said: str, remedy: str) -> None:
    failed = OF_13 | {"tls_alert": alert, "tls_alert_from": sender}
    (one,) = findings_of(PLAIN, OF_13, failed, failed | {"connection_id": 2, "first_host_ns": 9})
    assert (one.kind, one.host, one.count, one.failed_count) == ("tls_handshake_failed", "web", 2, 2)
    assert one.text == f"2 TLS handshakes of client with web:443 (api.example) failed: {said}"
    assert remedy in one.remedy
    assert one.connection_id == 1


def test_handshakes_without_an_alert_are_none() -> None:
    assert findings_of(PLAIN, OF_13) == []
    assert findings_of() == []


def test_a_handshake_in_words() -> None:
    everything = OF_13 | {"tls_early_data_offered": True, "tls_ech_offered": True, "tls_retried": True}
    cases = {
        "": PLAIN,
        "TLS 1.3; TLS_AES_128_GCM_SHA256; asked for api.example; h2, http/1.1 offered (which was chosen is encrypted); "
        "session resumed, or a key that both ends were given before": OF_13,
        "TLS 1.3; TLS_AES_128_GCM_SHA256; asked for api.example (an outer name, if the hello is encrypted); h2, "
        "http/1.1 offered (which was chosen is encrypted); session resumed, or a key that both ends were given before; "
        "early data offered; another hello was asked for": everything,
        "TLS 1.2; h2 chosen of h2, http/1.1; full handshake; the client's hello was not captured whole": PLAIN
        | {
            "tls_version": "1.2",
            "tls_alpn": "h2",
            "tls_alpn_offered": "h2, http/1.1",
            "tls_resumption": "full",
            "tls_evidence": "server",
        },
        "TLS, 1.2 offered; failed: the server sent protocol_version; the server's hello was not captured whole": PLAIN
        | {
            "tls_versions_offered": "1.2",
            "tls_alert": "protocol_version",
            "tls_alert_from": "server",
            "tls_evidence": "client",
        },
    }
    for words, row in cases.items():
        assert handshake_words(table(row).to_pylist()[0]) == words


def test_handshakes_are_listed_by_server_and_kind_most_first() -> None:
    full = OF_13 | {"tls_resumption": "full"}
    old = OF_13 | {"tls_version": "1.2", "tls_alpn": "h2", "tls_alert": "unknown_ca", "tls_alert_from": "client"}
    lines = tls_lines([table(PLAIN, old, OF_13), table(full, full)])
    assert [line_words(line) for line in lines] == [
        (
            "web:443 (api.example)",
            "TLS 1.3, TLS_AES_128_GCM_SHA256, h2, http/1.1",
            "3 handshakes: 2 full, 1 resumed",
        ),
        ("web:443 (api.example)", "TLS 1.2, TLS_AES_128_GCM_SHA256, h2", "1 handshake: 1 resumed, 1 failed"),
    ]
