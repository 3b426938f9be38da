"""How many replicas each zone, host and device should hold: dispersion first, then weight.

`bounds` says how many replicas of one partition a place may have: as even over zones as the number of their devices
lets them be, in a zone as even over its hosts, one on a device. `quotas` shares out all replicas by weight within
those bounds; what a bound cuts off goes to the others by weight, and rounding favours who holds more already.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from storage_cluster.topology import Device, RingShape

Tier = Hashable
"""A zone's number, or (zone, host)."""
Bounds = tuple[int, int]
"""Fewest and most."""
_ROUNDING = 1e-6


def quotas(devices: Sequence[Device], shape: RingShape, held: Sequence[int]) -> list[int]:
    """How many replicas each device should hold. They add up to all replicas, as far as dispersion allows."""
    count = 1 << shape.partition_power
    zones = _group_by(range(len(devices)), lambda index: devices[index].zone)
    zone_bounds = _spread({zone: _capacity(devices, members) for zone, members in zones.items()}, shape.replicas)
    wanted = [0] * len(devices)
    for zone, zone_quota in _shares(shape.replicas * count, zones, zone_bounds, devices, held, count).items():
        hosts = _group_by(zones[zone], lambda index: devices[index].host)
        host_bounds = _host_bounds(devices, hosts, zone_bounds[zone])
        for host, host_quota in _shares(zone_quota, hosts, host_bounds, devices, held, count).items():
            alone = {index: [index] for index in hosts[host]}
            single = dict.fromkeys(hosts[host], (0, 1))
            for index, quota in _shares(host_quota, alone, single, devices, held, count).items():
                wanted[index] = quota
    return wanted


def bounds(devices: Sequence[Device], replicas: int) -> dict[Tier, Bounds]:
    """For each zone and each (zone, host): the fewest and most replicas of one partition."""
    zones = _group_by(range(len(devices)), lambda index: devices[index].zone)
    found: dict[Tier, Bounds] = {}
    found.update(_spread({zone: _capacity(devices, members) for zone, members in zones.items()}, replicas))
    for zone, members in zones.items():
        hosts = _group_by(members, lambda index: devices[index].host)
        found.update({(zone, host): nested for host, nested in _host_bounds(devices, hosts, found[zone]).items()})
    return found


def _host_bounds(devices: Sequence[Device], hosts: Mapping[str, list[int]], zone: Bounds) -> dict[str, Bounds]:
    """The bounds of a zone's hosts, for both the fewest and the most replicas that the zone may hold."""
    capacity = {host: _capacity(devices, members) for host, members in hosts.items()}
    fewest, most = _spread(capacity, zone[0]), _spread(capacity, zone[1])
    return {host: (fewest[host][0], most[host][1]) for host in hosts}


def _spread(capacity: Mapping[Any, int], replicas: int) -> dict[Any, Bounds]:
    """The fewest and most replicas of each place, if they are spread as evenly as the places' capacities allow."""
    level = 0
    while sum(min(level, room) for room in capacity.values()) < min(replicas, sum(capacity.values())):
        level += 1
    return {place: (max(0, min(level - 1, room)), min(level, room)) for place, room in capacity.items()}


def _capacity(devices: Sequence[Device], members: Sequence[int]) -> int:
    return sum(devices[index].weight > 0 for index in members)


def _group_by(indices: Sequence[int], key: Callable[[int], Hashable]) -> dict[Any, list[int]]:
    groups: dict[Any, list[int]] = {}
    for index in indices:
        groups.setdefault(key(index), []).append(index)
    return groups


def _shares(
    total: int,
    groups: Mapping[Any, Sequence[int]],
    limits: Mapping[Any, Bounds],
    devices: Sequence[Device],
    held: Sequence[int],
    partition_count: int,
) -> dict[Any, int]:
    """Whole numbers for the groups, by weight within bounds; together `total`, or all that the bounds allow."""
    weight = {group: sum(devices[index].weight for index in members) for group, members in groups.items()}
    low = {group: limits[group][0] * partition_count for group in groups}
    high = {group: limits[group][1] * partition_count for group in groups}
    total = min(max(total, sum(low.values())), sum(high.values()))
    exact = _fit_shares(total, weight, low, high)
    share = {group: int(exact[group] + _ROUNDING) for group in groups}
    have = {group: sum(held[index] for index in members) for group, members in groups.items()}
    rounded = [group for group in groups if exact[group] - share[group] > _ROUNDING]
    by_claim = sorted(rounded, key=lambda group: (have[group] <= share[group], share[group] - exact[group]))
    for group in by_claim[: total - sum(share.values())]:
        share[group] += 1
    return share


def _fit_shares(
    total: int, weight: Mapping[Any, float], low: Mapping[Any, int], high: Mapping[Any, int]
) -> dict[Any, float]:
    """Shares in proportion to weight, limited by the bounds, that add up to the total."""

    def shares(scale: float) -> dict[Any, float]:
        return {group: min(high[group], max(low[group], scale * weight[group])) for group in weight}

    below, above = 0.0, 1.0
    while sum(shares(above).values()) < total - 1e-9 and above < 1e18:
        above *= 2
    for _ in range(100):
        middle = (below + above) / 2
        below, above = (middle, above) if sum(shares(middle).values()) < total else (below, middle)
    return shares(above)
