"""By what hosts are grouped."""

import pytest

from viewer.layout import without_number


@pytest.mark.parametrize(
    ("host", "group"),
    [
        ("storage12", "storage"),
        ("storage-12", "storage"),
        ("storage-12.lab.example", "storage.lab.example"),
        ("web-0.web.default.svc", "web.web.default.svc"),
        ("client", "client"),
        ("12", "12"),
        ("12.lab", "12.lab"),
        ("10.0.0.5", "10.0.0"),
        ("fd00::5", "fd00::"),
    ],
)
def test_hosts_of_a_kind_share_a_name_without_numbers(host: str, group: str) -> None:
    assert without_number(host) == group
