"""The ring: same everywhere, spread over zones, and little moves when a device goes."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_cluster.ring import Ring, path_hash
from storage_cluster.topology import Device, RingShape


@st.composite
def device_sets(draw: st.DrawFn) -> list[Device]:
    zones = draw(st.integers(1, 5))
    count = draw(st.integers(3, 8))
    return [
        Device(f"host{n % draw(st.integers(1, 4))}", f"d{n}", n % zones, draw(st.floats(0.1, 4))) for n in range(count)
    ]


@given(device_sets(), st.sampled_from(["account", "container", "object"]))
def test_replicas_are_distinct_and_in_as_many_zones_as_there_are(devices: list[Device], name: str) -> None:
    ring = Ring(name, devices, RingShape(4, 3))
    zones = len({device.zone for device in devices})
    for partition in range(ring.partition_count):
        primaries = ring.primaries(partition)
        assert len(set(primaries)) == 3
        assert len({device.zone for device in primaries}) == min(3, zones)
        assert {*primaries, *ring.handoffs(partition)} == set(devices)


@given(device_sets(), st.randoms())
def test_the_order_of_devices_in_the_file_does_not_matter(devices: list[Device], random: st.DrawFn) -> None:
    shuffled = list(devices)
    random.shuffle(shuffled)
    one, other = (Ring("object", given, RingShape(4, 3)) for given in (devices, shuffled))
    assert [one.primaries(p) for p in range(16)] == [other.primaries(p) for p in range(16)]


@given(device_sets().filter(lambda devices: len(devices) > 3), st.data())
def test_a_device_that_goes_moves_only_its_own_partitions(devices: list[Device], data: st.DataObject) -> None:
    gone = data.draw(st.sampled_from(devices))
    before = Ring("object", devices, RingShape(4, 3))
    after = Ring("object", [device for device in devices if device != gone], RingShape(4, 3))
    for partition in range(before.partition_count):
        if gone not in before.primaries(partition):
            assert after.primaries(partition) == before.primaries(partition)


def test_weight_decides_the_share() -> None:
    devices = [Device("a", "light", 1, 1.0), Device("a", "heavy", 1, 3.0), Device("a", "none", 1, 0.0)]
    ring = Ring("object", devices, RingShape(12, 1))
    held = {device.name: sum(ring.primaries(p) == (device,) for p in range(4096)) for device in devices}
    assert held["none"] == 0
    assert held["heavy"] / held["light"] == pytest.approx(3, rel=0.15)


def test_partition_is_the_top_of_the_md5_as_in_swift() -> None:
    ring = Ring("object", [Device("a", "d", 0)], RingShape(8, 1, "suffix"))
    digest = hashlib.md5(b"/AUTH_test/c/osuffix").hexdigest()
    assert path_hash(("AUTH_test", "c", "o"), "suffix") == digest
    assert ring.partition("AUTH_test", "c", "o") == int(digest[:2], 16)


def test_rings_place_the_same_partition_differently() -> None:
    devices = [Device(f"h{n}", "d", n) for n in range(6)]
    rings = [Ring(name, devices, RingShape(6, 3)) for name in ("account", "object")]
    assert any(rings[0].primaries(p) != rings[1].primaries(p) for p in range(64))
