"""Writes to handoffs, inferred from the failures before them, with a ring's own word, and where there are none."""

import gzip
from collections.abc import Iterable
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from collector.findings.placement import placement_findings
from collector.findings.requests import requests_of
from collector.findings.thresholds import DEFAULTS
from collector.requests.spans import link
from collector.services.replicas import FAILED, target_parts
from collector.services.rings import NO_PLACES, Device, Places, read_rings
from testkit.tables import table
from tests.helpers.exchange_lines import at_us, exchanges_of
from tracer.errors import InputError

RINGS = Path(__file__).parent / "rings"
ADDRESSES = {f"storage{number}": f"10.0.0.{number + 2}" for number in range(1, 5)}
Refusals = Iterable[tuple[float, float | None, str]]
"""When a connection was begun, when it was refused (None: never answered), and which server's it was."""


def upload(at: int, number: int, *devices: str, partition: int = 7) -> str:
    """A PUT to these (`host:device`, `host:device@µs` later than the others, `!status` of its answer)."""
    lines = [
        f"client > proxy/swift-proxy {at} {at + 10} {at + 900000} {at + 900010} method=PUT target=/v1/a/c/o tx={number}"
    ]
    for place, device in enumerate(devices):
        named, _, status = device.partition("!")
        named, _, late = named.partition("@")
        host, _, disk = named.partition(":")
        begin = at + 20 + place + int(late or 0)
        times = f"{begin} {begin + 5} {begin + 40} {begin + 45}"
        said = f"target=/{disk}/{partition}/a/c/o tx={number} status={status or 201}"
        lines.append(f"proxy > {host}/swift-object {times} method=PUT {said}")
    return "\n".join(lines)


USUAL = ("storage1:d1", "storage2:d1", "storage3:d1")


def handoffs(
    text: str, refusals: Refusals = (), rings: Places = NO_PLACES, confidence: float | None = None
) -> list[tuple[str, int, set[str]]]:
    """Host that writes were meant for, how many, and where they went; `confidence` is that of all links."""
    exchanges = exchanges_of(text)
    spans = link(exchanges)
    same = pa.array([confidence] * len(spans), spans.schema.field("confidence").type)
    spans = spans.set_column(spans.column_names.index("confidence"), "confidence", same)
    ends = pl.DataFrame(exchanges).with_columns(pl.col(pl.Categorical).cast(pl.String))
    connections = [
        {"connection_id": row["exchange_id"], "server_port": 6200, "server_addr": ADDRESSES.get(row["server_host"])}
        for row in ends.iter_rows(named=True)
    ]
    rows = [
        ("proxy", server, 6200, at_us(str(began)), None if refused is None else at_us(str(refused)))
        for began, refused, server in refusals
    ]
    found = placement_findings(
        requests_of([exchanges], [spans]),
        pl.DataFrame(rows, FAILED, orient="row"),
        DEFAULTS.placement,
        lambda _: [table("connections", connections)],
        rings,
    )
    return [(str(each.host), each.count, set(each.touches)) for each in found if each.kind == "handoffs"]


def test_what_follows_a_refused_connection_stands_in_for_it() -> None:
    text = upload(0, 1, *USUAL) + "\n" + upload(2_000_000, 2, "storage1:d1", "storage2:d1", "storage4:d1@300")
    assert handoffs(text, [(2_000_021, 2_000_060, "storage3")]) == [("storage3", 1, {"storage4"})]


def test_what_follows_a_connection_without_an_answer_stands_in_for_it() -> None:
    text = upload(0, 1, "storage1:d1", "storage2:d1", "storage4:d1@500000")
    assert handoffs(text, [(21, None, "storage3")]) == [("storage3", 1, {"storage4"})]


@pytest.mark.parametrize(("confidence", "expected"), [(0.79, []), (0.8, [("storage3", 1, {"storage4"})])])
def test_calls_that_may_be_of_two_requests_are_no_handoffs(
    confidence: float, expected: list[tuple[str, int, set[str]]]
) -> None:
    text = upload(0, 1, "storage1:d1", "storage2:d1", "storage4:d1@500000")
    assert handoffs(text, [(21, None, "storage3")], confidence=confidence) == expected


def test_a_substitute_that_is_refused_too_is_followed_by_one() -> None:
    text = upload(0, 1, "storage1:d1", "storage2:d1", "storage4:d1@900")
    refusals = [(19, 60, "storage3"), (300, 340, "storage3")]
    assert handoffs(text, refusals) == [("storage3", 1, {"storage4"})]


@pytest.mark.parametrize("status", [507, 503])
def test_what_follows_an_error_stands_in_for_it(status: int) -> None:
    text = upload(0, 1, "storage1:d1", "storage2:d1", f"storage3:d1!{status}", "storage4:d1@300")
    assert handoffs(text) == [("storage3", 1, {"storage4"})]


def test_a_server_left_out_after_failures_is_missed_where_its_device_is_known() -> None:
    known, refused = upload(0, 1, *USUAL), upload(2_000_000, 2, "storage1:d1", "storage2:d1", "storage4:d1@300")
    left_out = upload(4_000_000, 3, "storage1:d1", "storage2:d1", "storage4:d1")
    found = handoffs("\n".join([known, refused, left_out]), [(2_000_021, 2_000_060, "storage3")])
    assert found == [("storage3", 2, {"storage4"})]


def test_of_requests_at_once_the_one_that_asked_beside_the_refused_connection_is_meant() -> None:
    one = upload(0, 1, "storage1:d1", "storage2:d1", "storage4:d1@300", partition=7)
    other = upload(100, 2, "storage1:d2", "storage2:d2", "storage4:d2@20", partition=8)
    assert handoffs(one + "\n" + other, [(23, 60, "storage3")]) == [("storage3", 1, {"storage4"})]


@pytest.mark.parametrize(
    ("text", "refusals"),
    [
        (upload(0, 1, *USUAL), ()),
        # As many devices as there are writes: an object server's word to its one container server each, many policies.
        ("\n".join(upload(1000 * n, n, "storage1:d1", f"storage{2 + n % 3}:d{n % 2}") for n in range(1, 9)), ()),
        # The failure was somebody else's: before the request, or at a server that it uses.
        (upload(1000, 1, *USUAL), ((10, 50, "storage4"),)),
        (upload(0, 1, "storage1:d1", "storage2:d1", "storage3:d1@300"), ((21, 60, "storage3"),)),
        # All were asked at once; then one failed, and nothing followed.
        (upload(0, 1, "storage1:d1", "storage2:d1", "storage3:d1!503"), ()),
        (upload(0, 1, *USUAL), ((21.5, 21.8, "storage4"),)),
    ],
    ids=["three", "spread", "before", "same server", "failed at the end", "in one burst"],
)
def test_nothing_stands_in_where_nothing_shows_it(text: str, refusals: Refusals) -> None:
    assert handoffs(text, refusals) == []


def test_without_targets_nothing_is_inferred() -> None:
    assert handoffs("client > proxy 0 10 90 100\nproxy > storage1 20 25 60 65", [(21, 22, "storage2")]) == []


def always(count: int, later: str, *servers: str) -> str:
    """Uploads to other places each time, to all three servers; then one more."""
    devices = servers or USUAL
    early = (upload(number * 2_000_000, number, *devices, partition=number) for number in range(1, count + 1))
    return "\n".join([*early, later])


AT = 20_000_000
WITHOUT = upload(AT, 90, "storage1:d1", "storage2:d1", "storage2:d2@3", partition=90)
REFUSED = (AT - 900_000, AT - 899_990, "storage3")
FAILOVER = upload(AT - 900_020, 89, "storage1:d1", "storage2:d1", "storage1:d2@800", partition=89)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (always(6, FAILOVER + "\n" + WITHOUT), 2),
        (always(4, FAILOVER + "\n" + WITHOUT), 1),
        (always(6, FAILOVER + "\n" + WITHOUT, "storage1:d1", "storage2:d1", "storage4:d1"), 1),
        (
            always(6, "\n".join([FAILOVER, upload(AT - 500_000, 91, *USUAL, partition=91), WITHOUT])),
            1,
        ),
        (always(6, WITHOUT), 0),
        (
            always(
                6,
                upload(AT - 5_000_000, 92, "storage1:d1", "storage2:d1", "storage4:d1")
                + "\n"
                + FAILOVER
                + "\n"
                + WITHOUT,
            ),
            1,
        ),
    ],
    ids=["always written before", "too few", "another one was", "it is back", "nothing had failed", "not always"],
)
def test_a_server_that_is_left_out_of_what_it_always_took(text: str, count: int) -> None:
    refusals = [REFUSED] if FAILOVER in text else []
    assert sum(each[1] for each in handoffs(text, refusals)) == count


def test_a_ring_names_the_primaries() -> None:
    """The table is what Swift's own `RingData.load` reads from this file."""
    (ring,) = read_rings(RINGS)
    devices = [Device(f"10.0.0.{number + 3}", 6200, "d1") for number in range(4)]
    assert [list(names) for names in ring.devices] == [[device] for device in devices]
    assert [list(of) for of in ring.replicas] == [
        [2, 1, 2, 1, 3, 0, 0, 2, 0, 3, 3, 2, 1, 3, 1, 0],
        [3, 0, 3, 0, 1, 2, 2, 3, 2, 1, 1, 3, 0, 1, 0, 2],
        [1, 2, 1, 2, 0, 3, 3, 1, 3, 0, 0, 1, 2, 0, 2, 3],
    ]
    assert ring.primaries(7) == [{devices[2]}, {devices[3]}, {devices[1]}]
    assert ring.primaries(16) == []


def test_rings_of_the_second_version() -> None:
    """Both written by Swift 2.38's own `RingData.save`: the ring above, and one of two and a half replicas with 32-bit
    numbers in which a partition has no device."""
    first, (other, same) = read_rings(RINGS)[0], read_rings(RINGS.with_name("rings_v2"))
    assert (same.name, same.devices, same.known) == ("object", first.devices, first.known)
    assert [list(of) for of in same.replicas] == [list(of) for of in first.replicas]
    nobody = 2**32 - 1
    assert [list(of) for of in other.replicas] == [
        *(list(of) for of in first.replicas[:2]),
        [1, 2, 1, nobody, 0, 3, 3, 1],
    ]
    assert [len(other.primaries(partition)) for partition in (2, 3, 8)] == [3, 2, 2]


def test_with_a_ring_nothing_is_inferred() -> None:
    places = Places(read_rings(RINGS), {address: host for host, address in ADDRESSES.items()})
    right = upload(0, 1, "storage2:d1", "storage3:d1", "storage4:d1")
    wrong = upload(2_000_000, 2, "storage2:d1", "storage1:d1", "storage4:d1")
    assert handoffs(right, [(21, 22, "storage1")], places) == []
    assert handoffs(right + "\n" + wrong, (), places) == [("storage3", 1, {"storage1"})]
    unknown = upload(0, 1, "storage2:d9", "storage1:d1", "storage4:d1")
    assert handoffs(unknown, (), places) == []


def test_what_is_no_ring_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no"):
        read_rings(tmp_path)
    for folder in (RINGS, RINGS.with_name("rings_v2")):
        ring = (folder / "object.ring.gz").read_bytes()
        for damaged in (ring[:100], b"", ring[:-20], b"R1NG", gzip.compress(gzip.decompress(ring)[:40])):
            (tmp_path / "object.ring.gz").write_bytes(damaged)
            with pytest.raises(InputError, match="cannot be read as a ring"):
                read_rings(tmp_path)
    (tmp_path / "object.ring.gz").write_bytes(gzip.compress(b"R1NG\0\x03" + bytes(100)))
    with pytest.raises(InputError, match="no ring file of version 1 or 2"):
        read_rings(tmp_path)


def test_parts_of_targets() -> None:
    (row,) = target_parts(pl.DataFrame(exchanges_of("proxy > s/swift-object 0 1 2 3 target=/d1/7/a/c/o/p"))).to_dicts()
    assert row == {
        "exchange_id": 1,
        "device": "d1",
        "partition": "7",
        "account": "a",
        "container": "c",
        "object": "o/p",
    }
