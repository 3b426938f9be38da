"""The captures that are mutated: of every system at hand, cut to a stretch of packets so that a replay is quick."""

import functools
import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from testkit.capture_records import Record, first_packets, join, packet_places, split

ROOT = Path(__file__).resolve().parents[2]
OWN = (ROOT / "captures", ROOT / "tests" / "golden" / "tls")
SUFFIXES = (".pcap", ".pcapng", ".pcap.gz", ".pcapng.gz", ".cap")
SIDE_FILES = ("command.json", "samples.csv")
MOST_PACKETS = 400
"""Of a host, in a stretch."""
MOST_BYTES = 1 << 18
"""Of a host's capture, uncompressed, that a stretch is taken from."""


@dataclass(frozen=True, slots=True)
class Captures:
    """Captures of several hosts, in memory: each host's file, and what stands beside them."""

    name: str
    hosts: dict[str, bytes]
    beside: dict[str, bytes]


def find(folders: Sequence[Path]) -> list[Path]:
    """Every folder at or below these that holds captures itself. The repository's own come first."""
    found = [below for folder in [*OWN, *folders] for below in [folder, *sorted(folder.rglob("*"))] if below.is_dir()]
    return [folder for folder in found if any(_captures(folder))]


def load(folder: Path, random: Random) -> Captures:
    """A stretch of the captures of a folder: packets of about the same time at all hosts, whole where they are few."""
    hosts = _records(folder)
    most = max(len(packet_places(records)) for records in hosts.values())
    share = random.random() * max(0.0, 1 - MOST_PACKETS / max(most, 1)) if random.random() < 0.5 else 0.0
    kept = {}
    for host, records in hosts.items():
        count = len(packet_places(records))
        kept[host] = join(first_packets(records, int(count * share), MOST_PACKETS * count // max(most, 1) + 1))
    beside = {name: (folder / name).read_bytes() for name in SIDE_FILES if (folder / name).is_file()}
    return Captures(folder.name, kept, beside)


@functools.cache
def _records(folder: Path) -> dict[str, list[Record]]:
    """The records of each host's capture."""
    return {path.name.split(".", 1)[0]: split(_content(path)) for path in _captures(folder)}


def _captures(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.iterdir()) if path.name.endswith(SUFFIXES))


def _content(path: Path) -> bytes:
    """The first of a capture's bytes, uncompressed."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        return file.read(MOST_BYTES)
