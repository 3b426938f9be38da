"""How fast cards send: the orders that go to the kernel."""

from typing import Any

import pytest

from storage_cluster.hosts import network
from storage_cluster.topology import Link


class Orders:
    """Stands for a netlink socket: notes what is asked of the kernel."""

    def __init__(self) -> None:
        self.made: list[tuple[Any, ...]] = []

    def __enter__(self) -> "Orders":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def link_lookup(self, ifname: str) -> list[int]:
        assert ifname == network.HOST_INTERFACE
        return [7]

    def tc(self, command: str, *_: object, **given: object) -> None:
        self.made.append((command, given.get("rate"), given.get("burst"), given.get("latency")))


@pytest.mark.parametrize(
    ("link", "rate_bits_per_s", "expected"),
    [
        (Link(), None, ("del", None, None, None)),
        (Link(), 8_000_000, ("replace", 1_000_000, 16_384, "50ms")),
        (Link(burst_bytes=131_072, card_queue_ms=524), None, ("replace", 125_000_000, 131_072, "524ms")),
        (Link(card_queue_ms=524), 8_000_000, ("replace", 1_000_000, 16_384, "50ms")),
    ],
)
def test_a_card_sends_at_the_rate_of_a_fault_or_as_its_link_has_it(
    monkeypatch: pytest.MonkeyPatch, link: Link, rate_bits_per_s: int | None, expected: tuple[Any, ...]
) -> None:
    orders = Orders()
    monkeypatch.setattr("pyroute2.IPRoute", lambda: orders)
    network.shape_host(link, rate_bits_per_s)
    assert orders.made == [expected]
