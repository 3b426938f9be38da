"""Primaries and handoffs, told from what was asked."""

import polars as pl

from collector.replicas import HANDOFF, located, replica_roles
from collector.spans import link
from tests.helpers.exchange_lines import exchanges_of


def upload(at: int, number: int, *devices: str) -> str:
    """A PUT of partition 7 to these (`host:device`)."""
    lines = [f"client > proxy/swift-proxy {at} {at + 10} {at + 90} {at + 100} method=PUT target=/v1/a/c/o tx={number}"]
    for device in devices:
        host, _, disk = device.partition(":")
        times = f"{at + 20} {at + 25} {at + 60} {at + 65}"
        lines.append(f"proxy > {host}/swift-object {times} method=PUT target=/{disk}/7/a/c/o tx={number}")
    return "\n".join(lines)


USUAL = ("storage1:d1", "storage2:d1", "storage3:d2")


def roles(text: str) -> dict[int, str]:
    exchanges = exchanges_of(text)
    return dict(replica_roles(pl.DataFrame(exchanges), pl.DataFrame(link(exchanges))).iter_rows())


def test_a_device_that_stood_in_is_a_handoff() -> None:
    text = "\n".join(
        [
            upload(0, 1, *USUAL),
            upload(1000, 2, *USUAL),
            upload(2000, 3, "storage1:d1", "storage2:d1", "storage3:d1"),
            upload(3000, 4, *USUAL),
        ]
    )
    found = roles(text)
    assert len(found) == 12
    assert [number for number, role in found.items() if role == HANDOFF] == [12]


def test_all_are_primaries_where_none_stood_in() -> None:
    assert set(roles(upload(0, 1, *USUAL)).values()) == {"primary"}


def test_without_targets_nothing_is_told() -> None:
    assert roles("client > proxy 0 10 90 100\nproxy > storage1 20 25 60 65") == {}


def test_parts_of_targets() -> None:
    (row,) = located(pl.DataFrame(exchanges_of("proxy > s/swift-object 0 1 2 3 target=/d1/7/a/c/o/p"))).to_dicts()
    assert row == {
        "exchange_id": 1,
        "device": "d1",
        "partition": "7",
        "account": "a",
        "container": "c",
        "object": "o/p",
    }
