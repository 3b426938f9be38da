"""The ring: which devices hold an account, a container or an object.

A path's MD5 names a partition; a partition's devices are found by weighted rendezvous hashing: every device draws a
score from (ring, partition, device), -weight / ln(u), and devices are taken in falling order, first those in zones that
hold no replica yet, then those on hosts that hold none, then any. What follows the chosen replicas in that order are
the handoffs, where a replica goes when its device does not answer.

Invariants: the same topology gives the same ring everywhere, with nothing to distribute; replicas are on distinct
devices, and in distinct zones while there are zones enough; taking a device away moves only what it held.

Limit: balance is that of chance (a device's share of n partitions strays by about √n), where Swift's builder is exact.

Source: Thaler and Ravishankar, "Using name-based mappings to increase hit rates", IEEE/ACM ToN 6(1), 1998 (rendezvous
hashing); the path's hash and the partition's bits are Swift's (swift.common.ring: first 4 bytes, big-endian).
"""

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence

from storage_cluster.topology import Device, RingShape


def path_hash(path: Iterable[str], suffix: str) -> str:
    """MD5 of /account[/container[/object]] and the cluster's suffix, 32 hex digits."""
    text = "/" + "/".join(path) + suffix
    return hashlib.md5(text.encode("utf-8", "surrogateescape"), usedforsecurity=False).hexdigest()


class Ring:
    """Devices in order of preference for each partition of one ring (account, container or object)."""

    def __init__(self, name: str, devices: Sequence[Device], shape: RingShape) -> None:
        assert len(devices) >= shape.replicas
        self.name = name
        self.shape = shape
        self.partition_count = 1 << shape.partition_power
        self._orders = [_order(name, part, devices) for part in range(self.partition_count)]

    def partition(self, *path: str) -> int:
        """The partition of account[, container[, object]]."""
        return int(path_hash(path, self.shape.hash_suffix)[:8], 16) >> (32 - self.shape.partition_power)

    def primaries(self, partition: int) -> tuple[Device, ...]:
        """The devices that should hold this partition's replicas."""
        return self._orders[partition][: self.shape.replicas]

    def handoffs(self, partition: int) -> Iterator[Device]:
        """Where replicas go when a primary does not answer, best first."""
        return iter(self._orders[partition][self.shape.replicas :])


def _order(ring: str, partition: int, devices: Sequence[Device]) -> tuple[Device, ...]:
    left = sorted(devices, key=lambda device: (-_score(ring, partition, device), device.host, device.name))
    zones: set[int] = set()
    hosts: set[str] = set()
    order: list[Device] = []
    while left:
        chosen = next((d for d in left if d.zone not in zones), None) or next(
            (d for d in left if d.host not in hosts), left[0]
        )
        left.remove(chosen)
        order.append(chosen)
        zones.add(chosen.zone)
        hosts.add(chosen.host)
    return tuple(order)


def _score(ring: str, partition: int, device: Device) -> float:
    text = f"{ring}/{partition}/{device.host}/{device.name}".encode()
    drawn = int.from_bytes(hashlib.md5(text, usedforsecurity=False).digest()[:8], "big")
    unit = ((drawn >> 11) + 0.5) / 2.0**53
    return device.weight / -math.log(unit)
