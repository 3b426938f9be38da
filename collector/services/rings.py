"""Reads Swift's ring files, which assign partitions to devices.

A `*.ring.gz` is a gzip file: `R1NG` and a version.

1. The length of a JSON header, that header (`devs`, a list of devices with holes; `part_shift`; `replica_count`;
   `byteorder`), then for each replica an array of 16-bit places in `devs`, one for each partition.
2. Sections, each with its length ahead; the last of them, an index, has the position of each by name, and the 16 bytes
   at the end begin with the index's position. `swift/ring/metadata` is as the header above without `devs`, with
   `dev_id_bytes`; `swift/ring/devices` the list; `swift/ring/assignments` the arrays, in network order.

A replica count with a fraction leaves the last array shorter. A partition without a device has the highest number.

Source: swift/common/ring/ring.py (`RingData`), io.py (`RingWriter`) of Swift 2.38, which writes version 1 by default.
"""

import gzip
import json
import struct
import sys
import zlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from msgspec import Struct

from collector.services.device_calls import WRITES
from collector.services.replicas import STAND_INS
from tracer.errors import InputError

MAGIC = b"R1NG"
_PREFIX, _INDEX, _LENGTH = "!4sH", "!QQ", "!Q"
SUFFIX = ".ring.gz"


class Device(Struct, frozen=True):
    """A device in the ring: an address and port of its server, and its name."""

    address: str
    port: int
    name: str


class Ring(Struct, frozen=True):
    """One ring: `devices` by their number, all of them (`known`), each replica's device number for each partition."""

    name: str
    devices: Sequence[frozenset[Device]]
    known: frozenset[Device]
    replicas: Sequence[Sequence[int]]

    def primaries(self, partition: int) -> list[frozenset[Device]]:
        """The devices of a partition, each with all its names; empty for an unknown partition."""
        places = [of[partition] for of in self.replicas if partition < len(of)]
        return [self.devices[place] for place in places if place < len(self.devices)]


def read_rings(folder: Path) -> tuple[Ring, ...]:
    """All rings in a folder.

    Raises: `InputError` if there is none, or if one cannot be read.
    """
    paths = sorted(folder.glob(f"*{SUFFIX}")) if folder.is_dir() else []
    if not paths:
        raise InputError(f"{folder} holds no *{SUFFIX}", "name the folder of the rings, often /etc/swift")
    return tuple(_read_ring(path) for path in paths)


def _read_ring(path: Path) -> Ring:
    try:
        data = gzip.decompress(path.read_bytes())
        magic, version = struct.unpack_from(_PREFIX, data)
        if magic != MAGIC or version not in _VERSIONS:
            raise InputError(f"{path} is no ring file of version 1 or 2", "write it with swift-ring-builder")
        header, places = _VERSIONS[version](data)
        partitions = 1 << (32 - header["part_shift"])
        replicas = [places[start : start + partitions] for start in range(0, len(places), partitions)]
        devices = [_names(device) for device in header["devs"]]
    except (OSError, EOFError, zlib.error, struct.error, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} cannot be read as a ring: {error}", "copy it anew from a proxy's /etc/swift"
        ) from None
    nobody = (1 << 8 * places.itemsize) - 1
    if any(len(devices) <= place < nobody for of in replicas for place in of):
        raise InputError(f"{path} names devices that it does not list", "copy it anew from a proxy's /etc/swift")
    return Ring(path.name.removesuffix(SUFFIX), devices, frozenset[Device]().union(*devices), replicas)


def _first_version(data: bytes) -> "tuple[dict[str, Any], array[int]]":
    """The header, and all arrays in one."""
    (header_len,) = struct.unpack_from("!I", data, struct.calcsize(_PREFIX))
    begin = struct.calcsize(_PREFIX + "I") + header_len
    header = json.loads(data[begin - header_len : begin])
    return header, _array(data[begin:], 2, header.get("byteorder", sys.byteorder))


def _second_version(data: bytes) -> "tuple[dict[str, Any], array[int]]":
    """The header, and all arrays in one."""
    at, _ = struct.unpack_from(_INDEX, data, len(data) - struct.calcsize(_INDEX))
    index = {name: entry[1] for name, entry in json.loads(_section(data, at)).items()}
    header, devices, places = (
        _section(data, index[f"swift/ring/{name}"]) for name in ("metadata", "devices", "assignments")
    )
    fields = json.loads(header) | {"devs": json.loads(devices)}
    return fields, _array(places, fields["dev_id_bytes"], "big")


_VERSIONS = {1: _first_version, 2: _second_version}


def _section(data: bytes, at: int) -> bytes:
    """The contents of a section, which follow its length."""
    (length,) = struct.unpack_from(_LENGTH, data, at)
    begin = at + struct.calcsize(_LENGTH)
    if begin + length > len(data):
        raise ValueError(f"a section of {length} bytes at {at} is cut")
    return data[begin : begin + length]


def _array(data: bytes, itemsize: int, byteorder: str) -> "array[int]":
    every = array({2: "H", 4: "I"}[itemsize], data)
    if byteorder != sys.byteorder:
        every.byteswap()
    return every


def _names(device: dict[str, Any] | None) -> frozenset[Device]:
    """A device with both addresses of its server; empty for a hole in the list."""
    if device is None:
        return frozenset()
    ends = (("ip", "port"), ("replication_ip", "replication_port"))
    return frozenset(
        Device(device[address], device[port], device["device"])
        for address, port in ends
        if device.get(address) and device.get(port)
    )


class Places(Struct, frozen=True):
    """The rings' primaries, applied to requests; `hosts`, the captured hosts by their addresses."""

    rings: tuple[Ring, ...]
    hosts: Mapping[str, str]

    def stand_ins(self, attempts: Iterable[pl.DataFrame]) -> pl.DataFrame:
        """Writes to devices that are no primaries, each with a server that was left out (columns `replicas.STAND_INS`).

        Arguments: `attempts`, columns `device_calls.ATTEMPTS` and `device`, `address`, `partition`, with those of one
        parent in one frame. If several rings have a device (two storage policies on one disk), it is a primary if it is
        one in any of them.
        """
        found: list[tuple[int, str]] = []
        for rows in attempts:
            writes = rows.filter(pl.col("method").is_in(WRITES)).drop_nulls(["device", "address", "partition"])
            for group in writes.sort("begin_ns").partition_by(
                "parent_span_id", "service", "thing", maintain_order=True
            ):
                found += self._of_group(group)
        return pl.DataFrame(found, STAND_INS, orient="row")

    def _of_group(self, group: pl.DataFrame) -> Iterable[tuple[int, str]]:
        """The result for the writes of one parent."""
        rows = [
            (
                row["exchange_id"],
                Device(row["address"], row["server_port"] or 0, row["device"]),
                row["failed_ns"] is None,
            )
            for row in group.iter_rows(named=True)
        ]
        rings = [ring for ring in self.rings if all(device in ring.known for _, device, _ in rows)]
        partition = group["partition"][0]
        primaries = [names for ring in rings for names in ring.primaries(partition)]
        took = {device for _, device, went_well in rows if went_well}
        passed_over = [self._host(names) for names in primaries if not names & took]
        stood_in = [number for number, device, _ in rows if not any(device in names for names in primaries)]
        # More than one ring: which was meant cannot be known, so neither who was passed over.
        names = passed_over if len(rings) == 1 else []
        return zip(stood_in, [*names, *["another server"] * len(stood_in)], strict=False) if rings else ()

    def _host(self, names: frozenset[Device]) -> str:
        """The host of a device, by name if it was captured."""
        addresses = sorted(device.address for device in names)
        return next((self.hosts[each] for each in addresses if each in self.hosts), "".join(addresses[:1]))


NO_PLACES = Places((), {})
