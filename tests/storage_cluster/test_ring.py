"""The rings: spread over zones, balanced by weight, and little moves when devices come and go."""

import collections
import hashlib
import os
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_cluster import ring as rings
from storage_cluster import ring_builder, ring_quotas
from storage_cluster import topology as topologies
from storage_cluster.ring import Ring, path_hash
from storage_cluster.topology import Device, RingShape

SHAPE = RingShape(partition_power=6, replicas=3, hash_suffix="x")
BUNDLED = topologies.load(topologies.BUNDLED_FILE)


@pytest.mark.parametrize(("write_quorum", "quorum"), [(0, 2), (1, 1), (3, 3)])
def test_a_majority_decides_unless_the_topology_says_otherwise(write_quorum: int, quorum: int) -> None:
    shape = RingShape(partition_power=6, replicas=3, write_quorum=write_quorum)
    assert ring_builder.build("object", some_devices(1), shape).quorum == quorum


def some_devices(seed: int, replicas: int = 3) -> list[Device]:
    """Devices on hosts in zones, of any weights, enough of them for the replicas."""
    chance = random.Random(seed)
    zones = chance.randint(1, 6)
    devices = []
    for number in range(chance.randint(replicas, replicas + 8)):
        zone = chance.randrange(zones)
        weight = chance.choice([1.0, 1.0, 2.0, 0.5, chance.uniform(0.1, 4)])
        devices.append(Device(f"z{zone}h{chance.randint(0, 2)}", f"d{number}", zone, weight))
    return devices


def change_devices(devices: list[Device], seed: int) -> list[Device]:
    """The same with a device more, a device less, or another weight."""
    chance = random.Random(-seed - 1)
    at = chance.randrange(len(devices))
    what = chance.choice(["add", "remove", "reweight"]) if len(devices) > 3 else "add"
    if what == "add":
        zone = chance.randrange(7)
        return [*devices, Device(f"z{zone}h0", "new", zone, chance.choice([0.5, 1.0, 3.0]))]
    rest = devices[:at] + devices[at + 1 :]
    old = devices[at]
    return rest if what == "remove" else [*rest, Device(old.host, old.name, old.zone, old.weight * 2)]


def off_quota(ring: Ring) -> int:
    held = [ring.replica_counts[device] for device in ring.devices]
    wanted = ring_quotas.quotas(ring.devices, ring.shape, held)
    return sum(abs(have - want) for have, want in zip(held, wanted, strict=True))


def assert_dispersed(ring: Ring) -> None:
    """No two replicas on a device; in a zone, or on a host of a zone, never two more than elsewhere with room."""
    room: dict[int, int] = collections.Counter(device.zone for device in ring.devices if device.weight)
    for partition in range(ring.partition_count):
        primaries = ring.primaries(partition)
        assert len(set(primaries)) == ring.shape.replicas
        held = collections.Counter(device.zone for device in primaries)
        assert not [(a, b) for a in room for b in room if held[a] > held[b] + 1 and held[b] < room[b]], (
            f"{held} with room for {room}"
        )


@pytest.mark.parametrize("replicas", [1, 2, 3, 4, 5])
def test_a_new_ring_is_dispersed_and_every_device_has_its_quota(replicas: int) -> None:
    for seed in range(25):
        ring = ring_builder.build("object", some_devices(seed, replicas), RingShape(6, replicas))
        assert_dispersed(ring)
        assert off_quota(ring) == 0, seed


def test_a_change_moves_what_it_must_and_little_else() -> None:
    moved = needed = 0
    for seed in range(80):
        devices = some_devices(seed)
        before = ring_builder.build("object", devices, SHAPE)
        after = ring_builder.rebalance(before, change_devices(devices, seed))
        assert_dispersed(after)
        assert off_quota(after) == 0, seed
        had = {(device.host, device.name): count for device, count in before.replica_counts.items()}
        gains = [count - had.get((device.host, device.name), 0) for device, count in after.replica_counts.items()]
        this = ring_builder.moved_count(before, after)
        fewest = sum(gain for gain in gains if gain > 0)
        assert fewest <= this <= 2 * fewest + 8, seed
        moved, needed = moved + this, needed + fewest
    assert moved <= 1.04 * needed


def test_nothing_moves_without_a_reason() -> None:
    for seed in range(15):
        ring = ring_builder.build("object", some_devices(seed), SHAPE)
        assert ring_builder.rebalance(ring, ring.devices) == ring


def test_a_new_device_takes_its_share_at_most_one_replica_of_a_partition() -> None:
    before = ring_builder.build("object", BUNDLED.devices, BUNDLED.ring)
    after = ring_builder.rebalance(before, [*BUNDLED.devices, Device("storage3", "d3", 3)])
    assert sorted(after.replica_counts.values()) == [85, 85, 86, 128, 128, 128, 128]
    assert ring_builder.moved_count(before, after) == 85
    for partition in range(before.partition_count):
        assert len(set(before.primaries(partition)) - set(after.primaries(partition))) <= 1


def test_a_removed_device_gives_up_its_replicas_and_each_other_stays_in_its_column() -> None:
    before = ring_builder.build("object", BUNDLED.devices, BUNDLED.ring)
    gone = Device("storage2", "d1", 2)
    after = ring_builder.rebalance(before, [device for device in BUNDLED.devices if device != gone])
    assert ring_builder.moved_count(before, after) == before.replica_counts[gone]
    for partition in range(before.partition_count):
        for old, new in zip(before.primaries(partition), after.primaries(partition), strict=True):
            assert old in (new, gone)


def test_weight_decides_the_share_and_zero_empties_a_device() -> None:
    devices = [Device("a", "light", 1, 1.0), Device("a", "heavy", 1, 3.0), Device("a", "none", 1, 0.0)]
    ring = ring_builder.build("object", devices, RingShape(12, 1))
    assert {device.name: held for device, held in ring.replica_counts.items()} == {
        "light": 1024,
        "heavy": 3072,
        "none": 0,
    }
    assert ring_builder.balance_percent(ring) == 0


def test_a_zone_with_half_of_the_weight_still_holds_a_third_of_three_replicas() -> None:
    devices = [Device("a", "d", 1, 2.0), Device("b", "d", 2, 1.0), Device("c", "d", 3, 1.0)]
    ring = ring_builder.build("object", devices, SHAPE)
    assert set(ring.replica_counts.values()) == {64}
    assert ring_builder.balance_percent(ring) == pytest.approx(100 / 3)


@given(st.integers(0, 10_000), st.randoms())
@settings(max_examples=15)
def test_the_order_of_devices_in_the_file_does_not_matter(seed: int, chance: random.Random) -> None:
    devices = some_devices(seed)
    shuffled = list(devices)
    chance.shuffle(shuffled)
    assert ring_builder.build("object", devices, SHAPE) == ring_builder.build("object", shuffled, SHAPE)


def test_handoffs_are_all_other_devices_those_in_other_zones_first() -> None:
    for seed in range(15):
        ring = ring_builder.build("object", some_devices(seed), SHAPE)
        for partition in range(ring.partition_count):
            primaries, handoffs = ring.primaries(partition), list(ring.handoffs(partition))
            assert {*primaries, *handoffs} == set(ring.devices)
            assert len(handoffs) == len(ring.devices) - 3
            used = {device.zone for device in primaries}
            fresh = len({device.zone for device in ring.devices} - used)
            assert len({device.zone for device in handoffs[:fresh]} - used) == fresh


def test_what_a_dead_device_held_goes_to_several_handoffs() -> None:
    ring = ring_builder.build("object", BUNDLED.devices, BUNDLED.ring)
    firsts = collections.Counter(next(ring.handoffs(partition)) for partition in range(ring.partition_count))
    assert set(firsts) == set(BUNDLED.devices)


def test_partition_is_the_top_of_the_md5_as_in_swift() -> None:
    ring = ring_builder.build("object", [Device("a", "d", 0)], RingShape(8, 1, "suffix"))
    digest = hashlib.md5(b"/AUTH_test/c/osuffix").hexdigest()
    assert path_hash(("AUTH_test", "c", "o"), "suffix") == digest
    assert ring.partition("AUTH_test", "c", "o") == ring.partition_of_hash(digest) == int(digest[:2], 16)


def test_rings_place_the_same_partition_differently() -> None:
    account, container, stored = ring_builder.build_all(BUNDLED)
    assert account.table != container.table != stored.table


def test_a_ring_file_is_read_as_it_was_written_and_again_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / rings.FILE_NAME
    first = ring_builder.build_all(BUNDLED)
    rings.save(first, file)
    loaded = rings.Rings(file)
    assert list(loaded.values()) == first
    second = [ring_builder.rebalance(ring, BUNDLED.devices[:-1]) for ring in first]
    rings.save(second, file)
    loaded.refresh()
    assert list(loaded.values()) == second
    file.write_text("{", "utf-8")
    loaded.refresh()
    assert list(loaded.values()) == second
    file.unlink()
    loaded.refresh()
    assert list(loaded.values()) == second


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"version": 2}', '{"version": 1, "rings": [{"name": "x"}]}', "\xff"]
)
def test_what_is_no_ring_file_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / rings.FILE_NAME
    file.write_bytes(content.encode("latin-1"))
    with pytest.raises(rings.RingFileError, match=os.path.basename(file)):
        rings.load(file)
