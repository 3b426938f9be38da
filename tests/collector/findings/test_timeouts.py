"""A product's timeout is named only of services that are that product's."""

import pytest

from collector.findings.timeouts import fingerprint

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("waits_for", "wait_s", "services", "expected"),
    [
        ("answer", 10.01, ["swift-object"], "; 10 s is Swift's node_timeout of a proxy"),
        ("answer", 10.01, ["web:8080"], ""),
        ("answer", 8.0, ["swift-object"], ""),
        ("connect", 127.1, ["web:8080"], "; 127 s is Linux giving a SYN up after six retries (tcp_syn_retries)"),
    ],
)
def test_whose_timeout_a_wait_is(waits_for: str, wait_s: float, services: list[str], expected: str) -> None:
    assert fingerprint(waits_for, [round(wait_s * SECOND)], services) == expected
