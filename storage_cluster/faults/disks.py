"""Faults of a device: slow, failing, full, and bits that flip.

The first three are settings of the medium's model (`servers/disks/medium.py`), in a file that servers read before
each transfer. A device with a file system of its own is filled instead, so that it is full for every process. A bit is
flipped in the file itself and the file's times are restored, so that only reading the file reveals it.
"""

import dataclasses
import json
import os
import random
from collections.abc import Sequence
from pathlib import Path

from storage_cluster.faults.kinds import Fault, FaultError
from storage_cluster.hosts import filesystems
from storage_cluster.servers.disks import medium
from storage_cluster.topology import Topology

KINDS = ("slow-disk", "bad-disk", "full-disk")


class DiskFaults:
    """The faults of devices."""

    def __init__(self, topology: Topology, state_dir: Path) -> None:
        self._topology = topology
        self._state_dir = state_dir
        self._written: dict[str, medium.Fault] = {}
        self.end()  # what a killed keeper left

    def apply(self, active: Sequence[Fault]) -> None:
        """Write each device's faults to the file that its servers read."""
        wanted: dict[str, medium.Fault] = {}
        for fault in active:
            if fault.kind in KINDS:
                wanted[fault.target] = _join(wanted.get(fault.target, medium.Fault()), fault)
        for target in self._written.keys() - wanted.keys():
            self._file(target).unlink(missing_ok=True)
            self._filler(target).unlink(missing_ok=True)
        for target, found in wanted.items():
            if found != self._written.get(target):
                draft = self._file(target).with_suffix(".draft")
                draft.write_text(json.dumps(dataclasses.asdict(found)), "ascii")
                draft.replace(self._file(target))
                self._fill(target, found.full)
        self._written = wanted

    def once(self, fault: Fault) -> str:
        """Flip a bit; returns its place. Raises: FaultError if nothing is stored there."""
        if fault.kind != "bit-rot":
            return ""
        source = random.Random(fault.parameters.seed)
        device_dir = self._state_dir / "data" / fault.host / fault.part
        files = sorted(file for file in device_dir.glob("objects*/*/*/*/*.data") if file.stat().st_size)
        if not files:
            raise FaultError(f"no object is stored on {fault.target}", "upload some first")
        file = source.choice(files)
        bit = source.randrange(8 * file.stat().st_size)
        _flip(file, bit)
        return f"bit {bit} of {file}"

    def _fill(self, target: str, full: bool) -> None:
        """Fill the device's own file system, so that it is full for every process."""
        host, _, device = target.partition("/")
        filler = self._filler(target)
        if full and self._topology.host(host).disk(device).filesystem:
            filesystems.fill(filler)
        else:
            filler.unlink(missing_ok=True)

    def _filler(self, target: str) -> Path:
        return self._state_dir / "data" / target / ".filler"

    def end(self) -> None:
        """Remove all faults, since the data may be kept for the next cluster."""
        for pattern in (f"{medium.DISKS_DIR}/*/*.fault", "data/*/*/.filler"):
            for file in self._state_dir.glob(pattern):
                file.unlink()

    def _file(self, target: str) -> Path:
        host, _, device = target.partition("/")
        return medium.directory(self._state_dir, host) / f"{device}.fault"


def _join(known: medium.Fault, fault: Fault) -> medium.Fault:
    given = fault.parameters
    return medium.Fault(
        latency_ns=known.latency_ns + (given.latency_ns or 0),
        error_probability=max(known.error_probability, given.probability or 0.0),
        full=known.full or fault.kind == "full-disk",
        seed=known.seed if given.seed is None else given.seed,
    )


def _flip(file: Path, bit: int) -> None:
    times = file.stat()
    with open(file, "r+b") as stream:
        stream.seek(bit // 8)
        byte = stream.read(1)[0]
        stream.seek(bit // 8)
        stream.write(bytes([byte ^ 1 << bit % 8]))
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
