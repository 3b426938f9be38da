"""Fingerprints of handshakes: finds 4-tuples that may be one connection whose addresses were translated on the way.

A NAT or load balancer keeps either the ISNs or the timestamps. So two 4-tuples may be one connection if their SYN-ACKs,
each seen at one host only, share both ISNs or both timestamps; a captured NAT may have seen each in addition to that
host. This module only finds candidates, which are put into one partition; the matcher decides.

Memory: up to `MOST_IN_MEMORY` fingerprints; more are written to files by their hash, which are processed one by one.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from collector import _core
from collector.execution.spill import spill_errors
from tracer.scratch import Scratch

Keys = NDArray[np.uint64]

MOST_IN_MEMORY = 1 << 20
FILES_BITS = 6
"""2^n files, by the first bits of a fingerprint."""
ROW = np.dtype([("fingerprint", np.uint64), ("key", np.uint64), ("host", np.uint16)])
SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio: multiplying by it spreads keys over the high bits (Knuth, TAOCP 3, §6.4)."""


class Moves(Struct, frozen=True):
    """Keys (ascending), and the key that replaces each, so that 4-tuples that may be one connection have one key."""

    keys: Keys
    to: Keys


class Handshakes:
    """Fingerprints of SYN-ACKs of all hosts."""

    def __init__(self, spill: Path | None = None, most_in_memory: int = MOST_IN_MEMORY) -> None:
        self._spill, self._most = spill, most_in_memory
        self._rows: list[NDArray[np.void]] = []
        self._count = 0
        self._folder: Scratch | None = None

    def add(self, host: int, fingerprints: NDArray[np.uint64], keys: Keys) -> None:
        """Add the fingerprints of a batch of one host, and for each the key of its 4-tuple: shape (n,) both.

        Raises: `ResourceError` if they fit neither in memory nor on disk.
        """
        noted = np.empty(len(keys), dtype=ROW)
        noted["fingerprint"], noted["key"], noted["host"] = fingerprints, keys, host
        self._rows.append(noted)
        self._count += len(noted)
        if self._count > self._most:
            self._to_disk()

    def moves(self) -> Moves:
        """The keys to be replaced."""
        held = np.concatenate([np.empty(0, dtype=ROW), *self._rows])
        if self._folder is None:
            return _moves(_pairs(held))
        number = _file_number(held)
        found = []
        for place in range(1 << FILES_BITS):
            found.append(_pairs(np.concatenate([self._in_file(place), held[number == place]])))
        return _moves(np.concatenate(found))

    def save(self, path: Path) -> None:
        """Write all to a new file, for `moves_of_files`. Raises: OSError."""
        held = np.concatenate([np.empty(0, dtype=ROW), *self._rows])
        number = _file_number(held)
        with path.open("wb") as file:
            for place in range(1 << FILES_BITS):
                self._in_file(place).tofile(file)
                held[number == place].tofile(file)

    def close(self) -> None:
        """Release everything, also on disk."""
        self._rows.clear()
        if self._folder is not None:
            self._folder.cleanup()

    def _to_disk(self) -> None:
        rows = np.concatenate(self._rows)
        number = _file_number(rows)
        with spill_errors(self._spill):
            if self._folder is None:
                self._folder = Scratch(self._spill)
            for place in range(1 << FILES_BITS):
                with self._path(place).open("ab") as file:
                    rows[number == place].tofile(file)
        self._rows.clear()
        self._count = 0

    def _in_file(self, place: int) -> NDArray[np.void]:
        """Those that were moved to a file, of one number."""
        is_there = self._folder is not None and self._path(place).exists()
        return np.fromfile(self._path(place), dtype=ROW) if is_there else np.empty(0, dtype=ROW)

    def _path(self, place: int) -> Path:
        assert self._folder is not None
        return Path(self._folder.name) / f"{place:02}.handshakes"


def moves_of_files(paths: Sequence[Path]) -> Moves:
    """The keys to be replaced, by the fingerprints that `Handshakes.save` wrote of different hosts.

    Memory: 8 bytes for each of a file, and all fingerprints of one number.
    """
    files = [np.memmap(path, dtype=ROW, mode="r") if path.stat().st_size else np.empty(0, dtype=ROW) for path in paths]
    places = np.arange((1 << FILES_BITS) + 1, dtype=np.uint64)
    ends = [np.searchsorted(_file_number(rows), places) for rows in files]
    found = [
        _pairs(np.concatenate([rows[end[place] : end[place + 1]] for rows, end in zip(files, ends, strict=True)]))
        for place in range(1 << FILES_BITS)
    ]
    return _moves(np.concatenate(found))


def _file_number(rows: NDArray[np.void]) -> Keys:
    with np.errstate(over="ignore"):
        return (rows["fingerprint"] * SPREAD) >> np.uint64(64 - FILES_BITS)


def _pairs(rows: NDArray[np.void]) -> NDArray[np.uint64]:
    """Pairs of keys that alone have a fingerprint, each at one host, or also at a host between; shape (n, 2)."""
    columns = [np.ascontiguousarray(rows[name]) for name in ("fingerprint", "key", "host")]
    return np.column_stack(_core.handshake_pairs(*columns))


def _moves(pairs: NDArray[np.uint64]) -> Moves:
    """Every key of a connected group is replaced by the least key of the group."""
    if not len(pairs):
        return Moves(np.empty(0, np.uint64), np.empty(0, np.uint64))
    import scipy  # noqa: PLC0415  every replay would wait for it

    keys, number = np.unique(pairs, return_inverse=True)
    ends = number.reshape(-1, 2).T
    links = scipy.sparse.coo_array(
        (np.ones(len(pairs), dtype=np.int8), (ends[0], ends[1])), shape=(len(keys), len(keys))
    )
    _, group = scipy.sparse.csgraph.connected_components(links, directed=False)
    _, first = np.unique(group, return_index=True)
    to = keys[first[group]]
    moved = keys != to
    return Moves(keys[moved], to[moved])
