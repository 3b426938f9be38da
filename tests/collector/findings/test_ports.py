"""When a client's ports for one server are all used: concluded from the table of connections alone."""

import random
from collections.abc import Sequence

import pytest

from collector.findings.ports import PortThresholds, port_findings
from testkit.tables import table

CLOCKS = table("clocks", [])
LIMITS = PortThresholds()


def lines(ports: Sequence[int], step_ns: int = 10_000_000, part: int = 0) -> list[str]:
    rows = [
        {
            "connection_id": number,
            "client_host": "client",
            "server_host": "proxy",
            "client_addr": "10.0.0.1",
            "server_addr": "10.0.0.2",
            "client_port": port,
            "server_port": 8080,
            "first_host_ns": number * step_ns,
            "last_host_ns": number * step_ns + 5,
        }
        for number, port in enumerate(ports)
    ]
    return [
        f"{found.severity} {found.host} {found.count} | {found.text}"
        for found in port_findings(
            lambda _: [table("connections", rows[:part]), table("connections", rows[part:])], CLOCKS, LIMITS
        )
    ]


def in_random_order(ports: Sequence[int]) -> list[int]:
    return random.Random(1).sample(ports, len(ports))


def test_a_narrow_range_that_is_used_up() -> None:
    (line,) = lines([*range(40_000, 40_040, 2), *range(40_001, 40_041, 2)])
    assert line == (
        "warning client 40 | client used 40 ports (40000 to 40039) for connections to proxy:8080 within 390.0 ms, "
        "all ports of its range: further connections fail, or wait until a port is free again (60 s after its "
        "connection ended)"
    )


@pytest.mark.parametrize("part", [1, 13, 39])
def test_parts_of_the_table_are_counted_together(part: int) -> None:
    ports = [*range(40_000, 40_040, 2), *range(40_001, 40_041, 2)]
    assert lines(ports, part=part) == lines(ports) != []


def test_ports_used_again_are_reported() -> None:
    (line,) = lines(2 * in_random_order(range(40_000, 40_040)))
    assert "all ports of its range (40 of them again)" in line


def test_linux_s_whole_range_in_a_minute() -> None:
    ports = in_random_order(range(32_768, 32_768 + LIMITS.default_ports_count))
    assert len(lines(ports, 2_000_000)) == 1
    assert lines(ports, 200_000_000) == []  # over an hour and a half: each was forgotten long before


@pytest.mark.parametrize(
    "ports",
    [
        range(40_000, 40_100, 2),  # every second one, as Linux begins
        range(40_000, 40_100),  # in turn, as other systems do
        range(40_000, 40_010),  # few
        in_random_order(range(32_768, 60_999))[:5000],
        [40_000, 50_000] * 50,  # two, kept
    ],
    ids=["every second", "in turn", "few", "far apart", "two"],
)
def test_ports_to_spare(ports: Sequence[int]) -> None:
    assert lines(ports) == []
