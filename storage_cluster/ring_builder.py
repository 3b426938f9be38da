"""Builds rings from devices and their weights; later changes move as few replicas as possible.

There are two aims, of which the first has precedence. *Dispersion*: a partition's replicas lie in as many zones as
there are, in a zone on as many hosts as there are, and never twice on one device. *Balance*: a device holds its
weight's share. So a zone that has a third of the hosts but half of the weight holds a third of the replicas, if there
are three replicas and three zones.

A quota for each device comes first (`ring_quotas`). A rebalance then keeps each replica where it is, except those whose
device is gone, those that violate dispersion, and those above a device's quota. Each replica that is then missing is
placed on the device that lacks most, if dispersion allows it. Where no device fits, replicas move along a chain of
devices (a breadth-first augmenting path), the shortest first.

Everything is decided by the names and numbers given: the same change to the same ring gives the same ring anywhere.

Limits: plain Python, meant for 2**16 partitions and dozens of devices at most; fewest moves is what the order of steps
aims for, not a proven optimum; a chain is looked for move by move, so an exotic mix of zones can end some replicas off
balance.

Source: the aims are those of Swift's ring builder ("The Rings", swift.common.ring.builder); the method is our own.
"""

import collections
import random
from collections.abc import Iterator, Mapping, Sequence

from storage_cluster.policies import ring_name
from storage_cluster.ring import Ring
from storage_cluster.ring_quotas import Tier, bounds, quotas
from storage_cluster.services import RING_SERVICES
from storage_cluster.topology import Device, RingShape, Topology

_EMPTY = -1


def build(name: str, devices: Sequence[Device], shape: RingShape) -> Ring:
    """A new ring. There must be as many devices with weight as replicas."""
    return rebalance(Ring(name, shape, (), ((_EMPTY,) * shape.replicas,) * (1 << shape.partition_power)), devices)


def rebalance(ring: Ring, devices: Sequence[Device]) -> Ring:
    """The ring for these devices, with as many replicas as possible where they were, in the same columns."""
    assert sum(device.weight > 0 for device in devices) >= ring.shape.replicas, "fewer devices than replicas"
    ordered = tuple(sorted(devices, key=lambda device: (device.zone, device.host, device.name)))
    places = {(device.host, device.name): index for index, device in enumerate(ordered)}
    now = [places.get((device.host, device.name), _EMPTY) for device in ring.devices]
    rows = [[now[index] if index != _EMPTY else _EMPTY for index in row] for row in ring.table]
    table = _Table(ring.name, ordered, rows)
    table.strip()
    table.fill()
    return Ring(ring.name, ring.shape, ordered, tuple(tuple(row) for row in table.rows))


def build_all(topology: Topology) -> list[Ring]:
    """The rings of a new cluster: for accounts, for containers, and for the objects of each policy."""
    return [build(name, topology.devices, shape) for name, shape in shapes(topology).items()]


def shapes(topology: Topology) -> dict[str, RingShape]:
    """The rings that a cluster has, by name, and the shape of each."""
    found = {name: topology.ring for name in RING_SERVICES if name != "object"}
    return found | {ring_name(policy.index): topology.shape_of(policy) for policy in topology.policies}


def moved_count(before: Ring, after: Ring) -> int:
    """How many replicas are on another device than before."""
    return sum(
        len({(d.host, d.name) for d in after.primaries(p)} - {(d.host, d.name) for d in before.primaries(p)})
        for p in range(after.partition_count)
    )


def balance_percent(ring: Ring) -> float:
    """The greatest deviation of a device from its weight's share of replicas, in percent of that share."""
    weight = sum(device.weight for device in ring.devices)
    total = ring.partition_count * ring.shape.replicas
    shares = {device: total * device.weight / weight for device in ring.devices if device.weight}
    return max(100 * abs(ring.replica_counts[device] - share) / share for device, share in shares.items())


class _Table:
    """The table while it is built."""

    def __init__(self, name: str, devices: Sequence[Device], rows: list[list[int]]) -> None:
        self.rows = rows
        self._devices = devices
        replicas = len(rows[0])
        shape = RingShape(len(rows).bit_length() - 1, replicas)
        self.held = [0] * len(devices)
        for row in rows:
            for index in row:
                if index != _EMPTY:
                    self.held[index] += 1
        self.quota = quotas(devices, shape, self.held)
        self._order = list(range(len(rows)))
        random.Random(name).shuffle(self._order)
        self._chance = random.Random(f"{name}: ties")
        self._bounds = bounds(devices, replicas)
        self._tiers: list[tuple[Tier, Tier]] = [(device.zone, (device.zone, device.host)) for device in devices]
        self._members = _members(self._tiers)
        self._demanding = [zone for zone in {zone for zone, _ in self._tiers} if self._bounds[zone][0]]
        self._remaining = {
            tier: sum(self.quota[index] - self.held[index] for index in members)
            for tier, members in self._members.items()
        }

    def strip(self) -> None:
        """Remove replicas that violate dispersion or exceed a device's quota."""
        for partition in self._order:
            while (column := self._offender(partition)) is not None:
                self._take(partition, column)
        for index in range(len(self._devices)):
            excess = self.held[index] - self.quota[index]
            if excess > 0:
                for partition in self._victims(index)[:excess]:
                    self._take(partition, self.rows[partition].index(index))

    def fill(self) -> None:
        """Assign a device to each empty place."""
        for partition in self._order:
            for column, found in enumerate(self.rows[partition]):
                if found == _EMPTY:
                    self._place(partition, column)

    def _place(self, partition: int, column: int) -> None:
        legal = [index for index in range(len(self._devices)) if self._may_add(partition, index)]
        hungry = [index for index in legal if self.held[index] < self.quota[index]]
        chosen = max(hungry, key=lambda index: self._need(partition, index)) if hungry else self._make_room(legal)
        self._put(partition, column, chosen)

    def _need(self, partition: int, index: int) -> tuple[bool, int, int, int, float]:
        """The priority of a device for this replica: what its zone must have, then what zone, host and device lack."""
        zone, host = self._tiers[index]
        below = self._count(partition, zone) < self._bounds[zone][0]
        lacking = self.quota[index] - self.held[index]
        return below, self._remaining[zone], self._remaining[host], lacking, self._chance.random()

    def _make_room(self, legal: list[int]) -> int:
        """Move replicas along the shortest chain from a full device to one with room; returns the former."""
        came_from: dict[int, tuple[int, int] | None] = dict.fromkeys(legal)
        queue = collections.deque(legal)
        while queue:
            at = queue.popleft()
            if self.held[at] < self.quota[at]:
                return self._shift(at, came_from)
            for partition, onward in self._moves(at):
                if onward not in came_from:
                    came_from[onward] = (at, partition)
                    queue.append(onward)
        return min(legal, key=lambda index: (self.held[index] - self.quota[index], self.held[index]))

    def _shift(self, at: int, came_from: Mapping[int, tuple[int, int] | None]) -> int:
        while (step := came_from[at]) is not None:
            previous, partition = step
            column = self.rows[partition].index(previous)
            self._take(partition, column)
            self._put(partition, column, at)
            at = previous
        return at

    def _moves(self, index: int) -> Iterator[tuple[int, int]]:
        """Possible moves of single replicas away from a device: (partition, other device)."""
        for partition in self._order:
            row = self.rows[partition]
            if index in row:
                column = row.index(index)
                row[column] = _EMPTY
                found = [other for other in range(len(self._devices)) if self._may_add(partition, other)]
                row[column] = index
                yield from ((partition, other) for other in found if other != index)

    def _may_add(self, partition: int, index: int) -> bool:
        """Whether this device may fill the empty place of a partition."""
        row = self.rows[partition]
        if index in row or self._devices[index].weight <= 0:
            return False
        zone, host = self._tiers[index]
        if (
            self._count(partition, zone) >= self._bounds[zone][1]
            or self._count(partition, host) >= self._bounds[host][1]
        ):
            return False
        return (
            self._missing_replicas(partition) < row.count(_EMPTY)
            or self._count(partition, zone) < self._bounds[zone][0]
        )

    def _offender(self, partition: int) -> int | None:
        """The column of a replica that violates dispersion; of several, the one on the device most above its quota."""
        row = self.rows[partition]
        short = self._missing_replicas(partition) > row.count(_EMPTY)
        offending = [
            column
            for column, index in enumerate(row)
            if index != _EMPTY
            and (self._devices[index].weight <= 0 or self._is_too_many(partition, index, short=short))
        ]
        return max(offending, key=lambda c: (self.held[row[c]] - self.quota[row[c]], c), default=None)

    def _is_too_many(self, partition: int, index: int, *, short: bool) -> bool:
        zone, host = self._tiers[index]
        zone_count = self._count(partition, zone)
        above = any(self._count(partition, tier) > self._bounds[tier][1] for tier in (zone, host))
        return above or self._devices[index].weight <= 0 or (short and zone_count > self._bounds[zone][0])

    def _missing_replicas(self, partition: int) -> int:
        """How many replicas are still to be given to zones that have fewer than dispersion requires."""
        return sum(max(0, self._bounds[zone][0] - self._count(partition, zone)) for zone in self._demanding)

    def _victims(self, index: int) -> list[int]:
        """Partitions of a device, first those that lack no other replica and whose replica another device can hold."""
        held = [partition for partition in self._order if index in self.rows[partition]]
        hungry = {i for i in range(len(self._devices)) if self.held[i] < self.quota[i]}
        return sorted(held, key=lambda partition: self._reluctance(partition, index, hungry))

    def _reluctance(self, partition: int, index: int, hungry: set[int]) -> tuple[bool, bool]:
        row = self.rows[partition]
        touched = _EMPTY in row
        column = row.index(index)
        row[column] = _EMPTY
        taken = any(self._may_add(partition, other) for other in hungry)
        row[column] = index
        return touched, not taken

    def _count(self, partition: int, tier: Tier) -> int:
        members = self._members[tier]
        return sum(index in members for index in self.rows[partition])

    def _take(self, partition: int, column: int) -> None:
        self._change(self.rows[partition][column], -1)
        self.rows[partition][column] = _EMPTY

    def _put(self, partition: int, column: int, index: int) -> None:
        self._change(index, +1)
        self.rows[partition][column] = index

    def _change(self, index: int, by: int) -> None:
        self.held[index] += by
        for tier in self._tiers[index]:
            self._remaining[tier] -= by


def _members(tiers: Sequence[tuple[Tier, Tier]]) -> dict[Tier, frozenset[int]]:
    found: dict[Tier, set[int]] = collections.defaultdict(set)
    for index, pair in enumerate(tiers):
        for tier in pair:
            found[tier].add(index)
    return {tier: frozenset(members) for tier, members in found.items()}
