"""What fits: each device's time and size at every moment; a refusal names what is free, and from when it would fit."""

import dataclasses
import random

import pytest

from storage_cluster import ring_builder
from storage_cluster.servers.reservations.admission import Admission, Claim, NotAdmittedError
from storage_cluster.servers.reservations.claims import AccessReservation, SpaceReservation, format_time
from storage_cluster.services import RING_SERVICES
from storage_cluster.topology import Device, Disk, Host, ReservationOptions, RingShape, Service, Topology

BEGIN_S = 1_800_000_000.0
SSD = Disk("d1", "ssd", read_bytes_per_s=40_000_000, write_bytes_per_s=20_000_000, size_mib=1000)


def admission_of(promised: list[Claim], *, replicas: int = 1, disk: Disk = SSD, hosts: int = 2) -> Admission:
    names = [f"storage{number}" for number in range(1, hosts + 1)]
    made = [Host(name, "", _services(name), (Device(name, "d1", zone),), (disk,)) for zone, name in enumerate(names)]
    options = ReservationOptions(stripe_mb=1000, window_s=1e12)  # neither positioning nor the margin counts
    topology = Topology(tuple(made), (), RingShape(4, replicas, ""), reservations=options)
    ring = next(ring for ring in ring_builder.build_all(topology) if ring.name == "object")
    return Admission(topology, ring, promised)


def _services(host: str) -> tuple[Service, ...]:
    return tuple(Service(name, host, "", 0) for name in RING_SERVICES)


def access_of(direction: str, rate: float, first_s: float = 0.0, last_s: float = 60.0) -> AccessReservation:
    key = "k" if direction == "read" else ""
    return AccessReservation("b", direction, rate, BEGIN_S + first_s, BEGIN_S + last_s, key)


ONE_PIECE = [("storage1/d1", 1000)]


def test_a_read_takes_its_rate_where_the_object_lies() -> None:
    made, claims = admission_of([]).read(access_of("read", 20), ONE_PIECE)
    assert made.rates == {"storage1/d1": 20_000_000}
    assert [(claim.place, round(claim.busy, 3)) for claim in claims] == [("storage1/d1", 0.5)]


def test_a_read_of_parts_takes_of_each_device_what_lies_there() -> None:
    made, _ = admission_of([]).read(
        access_of("read", 50), [("storage1/d1", 750), ("storage2/d1", 500), ("storage2/d1", 250)]
    )
    assert made.rates == {"storage1/d1": 25_000_000, "storage2/d1": 25_000_000}


def test_an_empty_object_can_be_reserved() -> None:
    assert admission_of([]).read(access_of("read", 1), [("storage1/d1", 0)])[0].rates == {"storage1/d1": 1_000_000}


def test_what_exceeds_a_device_is_refused_with_what_is_free() -> None:
    _, claims = admission_of([]).read(access_of("read", 30), ONE_PIECE)
    with pytest.raises(
        NotAdmittedError, match=r"storage1/d1 has 6\.0 MB/s left of the 8\.0 .*there is room from"
    ) as refused:
        admission_of(claims).read(access_of("read", 8), ONE_PIECE)
    assert format_time(BEGIN_S + 60) in str(refused.value)
    admission_of(claims).read(access_of("read", 6), ONE_PIECE)
    admission_of(claims).read(access_of("read", 36, 60, 120), ONE_PIECE)


def test_more_than_a_device_has_is_never_possible() -> None:
    with pytest.raises(NotAdmittedError, match="never"):
        admission_of([]).read(access_of("read", 37), ONE_PIECE)


def test_reads_and_writes_share_a_devices_time() -> None:
    _, claims = admission_of([]).write(access_of("write", 9))  # 0.45 of each
    with pytest.raises(NotAdmittedError):
        admission_of(claims).read(access_of("read", 19), ONE_PIECE)
    admission_of(claims).read(access_of("read", 18), ONE_PIECE)


def test_a_write_is_promised_by_every_device_or_spread_where_none_has_it_all() -> None:
    whole, _ = admission_of([]).write(access_of("write", 15))
    assert (whole.is_spread, whole.rates) == (False, {"storage1/d1": 15_000_000, "storage2/d1": 15_000_000})
    spread, _ = admission_of([]).write(access_of("write", 25))
    assert (spread.is_spread, spread.rates) == (True, {"storage1/d1": 12_500_000, "storage2/d1": 12_500_000})
    with pytest.raises(NotAdmittedError, match="nor when it is spread"):
        admission_of([]).write(access_of("write", 40))


def test_a_write_of_all_replicas_takes_its_rate_on_each_of_them() -> None:
    made, _ = admission_of([], replicas=2).write(access_of("write", 18))
    assert set(made.rates.values()) == {18_000_000}
    with pytest.raises(NotAdmittedError):
        admission_of([], replicas=2).write(access_of("write", 19))  # spread over two it would be the same


def test_a_disk_is_charged_for_positioning() -> None:
    topology_of_disk = dataclasses.replace(SSD, media="hdd", read_bytes_per_s=0, write_bytes_per_s=0)
    made = admission_of([], disk=topology_of_disk)
    made._options = ReservationOptions(stripe_mb=1, window_s=1e9)  # 7.7 ms to transfer, 12.4 to get there
    made.read(access_of("read", 44), ONE_PIECE)
    with pytest.raises(NotAdmittedError):
        made.read(access_of("read", 46), ONE_PIECE)


def test_a_device_that_states_no_throughput_promises_none() -> None:
    with pytest.raises(NotAdmittedError, match="states no throughput"):
        admission_of([], disk=Disk("d1")).read(access_of("read", 1), ONE_PIECE)


def test_space_is_promised_by_weight_with_all_replicas() -> None:
    space = SpaceReservation("b", 600 << 20, BEGIN_S, BEGIN_S + 60)
    claims = admission_of([], replicas=2).space(space)
    assert [round(claim.bytes) for claim in claims] == [600 << 20] * 2
    with pytest.raises(NotAdmittedError, match=r"has 314\.6 MB left of the 629\.1 asked"):
        admission_of(claims, replicas=2).space(space)
    admission_of(claims, replicas=2).space(dataclasses.replace(space, bytes=300 << 20))
    admission_of(claims, replicas=2).space(dataclasses.replace(space, start_s=BEGIN_S + 60, end_s=BEGIN_S + 61))


def test_what_is_not_reserved_is_what_every_device_has_beside_its_promises() -> None:
    assert admission_of([]).unreserved_bytes(BEGIN_S) is None
    space = SpaceReservation("b", 600 << 20, BEGIN_S + 60, BEGIN_S + 120)
    claims = admission_of([], replicas=2).space(space)
    later = admission_of([], replicas=2).space(dataclasses.replace(space, start_s=BEGIN_S + 120, end_s=BEGIN_S + 180))
    assert admission_of([*claims, *later], replicas=2).unreserved_bytes(BEGIN_S) == 400 << 20
    beside = dataclasses.replace(space, bytes=250 << 20)
    assert admission_of([*claims, *admission_of([], replicas=2).space(beside)]).unreserved_bytes(BEGIN_S) == 300 << 20


def test_space_that_others_fill_already_cannot_be_reserved() -> None:
    space = SpaceReservation("b", 500 << 20, BEGIN_S, BEGIN_S + 60)
    admission_of([], replicas=2).space(space, 500 << 20)
    with pytest.raises(NotAdmittedError, match=r"has 523\.2 MB left of the 524\.3 asked of it .*never"):
        admission_of([], replicas=2).space(space, 501 << 20)


def test_a_space_with_a_base_throughput_takes_it_on_each_device() -> None:
    space = SpaceReservation("b", 1, BEGIN_S, BEGIN_S + 60, base_mb_per_s=10)
    claims = admission_of([]).space(space)
    assert [round(claim.busy, 3) for claim in claims] == [0.5, 0.5]  # as writes, which cost more
    assert admission_of(claims).places == ["storage1/d1", "storage2/d1"]


def test_no_moment_is_promised_twice() -> None:
    """Invariant: at every moment the claims of a device add up to 0.9 of its time at most."""
    source = random.Random(11)
    for _ in range(40):
        promised: list[Claim] = []
        for _ in range(30):
            first = source.uniform(0, 100)
            try:
                promised += admission_of(promised).read(
                    access_of("read", source.uniform(1, 30), first, first + source.uniform(0.1, 50)), ONE_PIECE
                )[1]
            except NotAdmittedError as error:
                assert "MB/s left" in str(error)
        for moment in (each.start_s for each in promised):
            assert sum(each.busy for each in promised if each.start_s <= moment < each.end_s) <= 0.9 * 1.001 + 1e-9
        assert sum(each.busy for each in promised) > 0.9, "nothing was ever full"
