"""The ring: which devices hold an account, a container or an object.

A path's MD5 names a partition (its first bits); a table, made by `ring_builder`, names the devices of each partition's
replicas, the primaries. The others follow as handoffs, where a replica goes when its device does not answer: first
those in zones that hold no replica yet, then those on hosts that hold none, then any, each group in an order drawn from
(ring, partition, device), so that a dead device's load spreads over all.

There is a ring for accounts, one for containers, one for the objects of each policy. All live in one file,
`data/rings.json` below the cluster's state directory, beside the data that they place: `up` writes it, `tracer cluster
ring rebalance` replaces it, and servers read it again when it changes. Where a cluster has several stores, each has
such a file of its own, `rings-STORE.json`.

Source: the path's hash and the partition's bits are Swift's (swift.common.ring.ring: first 4 bytes, big-endian), as is
the meaning of handoff; their order is weighted rendezvous hashing (Thaler and Ravishankar, IEEE/ACM ToN 6(1), 1998).
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from storage_cluster.topology import Device, RingShape

FILE_NAME = "rings.json"
_FILE_VERSION = 2
"""2: since accounts' databases know the policies of containers, so data that was kept before cannot be used."""
_LOOK_AGAIN_S = 1.0


def file_of(data_dir: Path, store: str = "") -> Path:
    """The file of a store's rings; those of the one store that needs no name in `rings.json`."""
    return data_dir / (f"rings-{store}.json" if store else FILE_NAME)


class RingFileError(ValueError):
    """The ring file cannot be understood; the message says why."""


def path_hash(path: Iterable[str], suffix: str) -> str:
    """MD5 of /account[/container[/object]] and the cluster's suffix, 32 hex digits."""
    text = "/" + "/".join(path) + suffix
    return hashlib.md5(text.encode("utf-8", "surrogateescape"), usedforsecurity=False).hexdigest()


@dataclasses.dataclass(frozen=True)
class Ring:
    """Devices in order of preference for each partition of one ring (account, container or object)."""

    name: str
    shape: RingShape
    devices: tuple[Device, ...]
    table: tuple[tuple[int, ...], ...]  # [partition][replica] = index into devices

    @property
    def kind(self) -> str:
        """What it places: account, container or object."""
        return self.name.partition("-")[0]

    @property
    def directory(self) -> str:
        """The directory of what it places, on each device."""
        kind, dash, index = self.name.partition("-")
        return f"{kind}s{dash}{index}"

    @property
    def quorum(self) -> int:
        """So many answers decide: a majority of the replicas, unless the topology says otherwise."""
        return self.shape.write_quorum or self.shape.replicas // 2 + 1

    @property
    def partition_count(self) -> int:
        """How many partitions there are."""
        return len(self.table)

    def partition(self, *path: str) -> int:
        """The partition of account[, container[, object]]."""
        return self.partition_of_hash(path_hash(path, self.shape.hash_suffix))

    def partition_of_hash(self, path_hash: str) -> int:
        """The partition of a path whose hash is known."""
        return int(path_hash[:8], 16) >> (32 - self.shape.partition_power)

    def primaries(self, partition: int) -> tuple[Device, ...]:
        """The devices that should hold this partition's replicas."""
        return tuple(self.devices[index] for index in self.table[partition])

    def handoffs(self, partition: int) -> Iterator[Device]:
        """The devices that receive replicas when a primary does not answer, best first."""
        return iter(self._handoffs(partition))

    @functools.cached_property
    def replica_counts(self) -> dict[Device, int]:
        """How many replicas each device holds."""
        counts = dict.fromkeys(self.devices, 0)
        for row in self.table:
            for index in row:
                counts[self.devices[index]] += 1
        return counts

    @functools.cached_property
    def _handoff_orders(self) -> dict[int, tuple[Device, ...]]:
        return {}

    def _handoffs(self, partition: int) -> tuple[Device, ...]:
        known = self._handoff_orders.get(partition)
        if known is None:
            known = self._handoff_orders[partition] = _handoff_order(self, partition)
        return known


def _handoff_order(ring: Ring, partition: int) -> tuple[Device, ...]:
    primaries = ring.primaries(partition)
    left = [device for device in ring.devices if device not in primaries]
    left.sort(key=lambda device: (-_score(ring.name, partition, device), device.host, device.name))
    zones, hosts = {device.zone for device in primaries}, {device.host for device in primaries}
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


def save(rings: Sequence[Ring], file: Path) -> None:
    """Replace the file of the cluster's rings atomically."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".tmp")
    document = {"version": _FILE_VERSION, "rings": [dataclasses.asdict(ring) for ring in rings]}
    with open(draft, "w", encoding="utf-8") as stream:
        json.dump(document, stream, separators=(",", ":"))
        stream.flush()
        os.fsync(stream.fileno())
    draft.replace(file)


def load(file: Path) -> dict[str, Ring]:
    """The rings in a file, by name. Raises: OSError, RingFileError."""
    try:
        document = json.loads(file.read_text("utf-8"))
        if document["version"] != _FILE_VERSION:
            raise RingFileError(f"{file}: version {document['version']} is not known")
        return {entry["name"]: _ring(entry) for entry in document["rings"]}
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise RingFileError(f"{file}: not a ring file ({error})") from None


def _ring(entry: dict) -> Ring:
    return Ring(
        entry["name"],
        RingShape(**entry["shape"]),
        tuple(Device(**device) for device in entry["devices"]),
        tuple(tuple(row) for row in entry["table"]),
    )


class Rings(Mapping[str, Ring]):
    """A server's rings by name, read again when their file changes."""

    def __init__(self, file: Path) -> None:
        """Raises: OSError, RingFileError."""
        self._file = file
        self._stamp = _stamp(file)
        self._rings = load(file)
        self._looked_s = time.monotonic()

    def __getitem__(self, name: str) -> Ring:
        if time.monotonic() - self._looked_s >= _LOOK_AGAIN_S:
            self.refresh()
        return self._rings[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rings)

    def __len__(self) -> int:
        return len(self._rings)

    def refresh(self) -> None:
        """Read the file again if it has changed. If it is missing or invalid, the rings stay as they are."""
        self._looked_s = time.monotonic()
        stamp = _stamp(self._file)
        if stamp not in (None, self._stamp):
            with contextlib.suppress(RingFileError):
                self._rings = load(self._file)
                self._stamp = stamp


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_ino
