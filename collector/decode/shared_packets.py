"""Packets by partition in files of a folder that several processes share: one reads a host's captures, others take the
partitions.

Each process numbers addresses in the order in which it meets them. What it found of its host is renumbered here, to one
numbering for all hosts; its packets are not rewritten, since a `HostView` has what they mean by any numbering.

Secrets of TLS never leave the process that read them. If a capture holds some, each process reads them from there. What
is followed from one period to the next may hold secrets, too: where it is, captures are read in this process.
"""

import copyreg
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from collector.capture_files.readers import TlsKeys, open_capture
from collector.decode.address_texts import AddressTexts
from collector.decode.handshakes import Moves, moves_of_files
from collector.decode.host_capture import READERS_COUNT, HostCapture, HostSource, Reading, file_size, read_host
from collector.decode.merged_captures import Sighted
from collector.decode.partitions import HostView, Partitions, SavedPart, Taken
from collector.execution.engine import Engine
from collector.execution.progress import SILENT, CountedProgress


class _Saved(Struct, frozen=True):
    """The packets of one host in a file: their places by partition, what addresses their numbers stand for, and the
    file of fingerprints of the host's handshakes."""

    path: Path
    places: Sequence[SavedPart]
    addresses: Sequence[str]
    handshakes: Path


class _ReadJob(Struct, frozen=True):
    """One host's captures to be read into a folder."""

    number: int
    source: HostSource
    hosts_count: int
    bits: int
    folder: Path
    how: Reading
    key_logs: Sequence[Path]
    captures_with_keys: Sequence[Path]


class _HostRead(Struct, frozen=True):
    """What is known of a host whose captures have been read; addresses are by the numbers of its packets."""

    capture: HostCapture
    sights: Sequence[Sighted]
    saved: _Saved
    holds_keys: bool


class _MoveJob(Struct, frozen=True):
    """A host's packets of which some go to other partitions."""

    number: int
    saved: _Saved
    bits: int
    moves: Moves


class SharedReader(Struct, frozen=True):
    """Reads captures into a folder, each host in a process of its own, or in this one if connections are followed; a
    `host_capture.ReadsCaptures`.

    Arguments: `folder`, which all processes share; `key_logs`, files with secrets of TLS.
    """

    engine: Engine
    folder: Path
    key_logs: Sequence[Path] = ()

    def __call__(
        self, bits: int, sources: Sequence[HostSource], how: Reading, progress: CountedProgress
    ) -> tuple[list[HostCapture], "SharedPackets"]:
        """The captures of all hosts, and their packets in 2^`bits` partitions. Raises: as `scan`."""
        found = self._read(bits, sources, how, progress, ())
        of_sources = zip(found, sources, strict=True)
        with_keys = [file for one, source in of_sources if one.holds_keys for file in source.files]
        if with_keys:
            found = self._read(bits, sources, how, progress, with_keys)
        packets = SharedPackets(bits, self, found)
        return [_with_numbers(one.capture, packets.numbers[place]) for place, one in enumerate(found)], packets

    def _read(
        self,
        bits: int,
        sources: Sequence[HostSource],
        how: Reading,
        progress: CountedProgress,
        with_keys: Sequence[Path],
    ) -> list[_HostRead]:
        followed = how.followed is not None
        chosen = replace(how, spill=None, progress=SILENT)
        if not followed:
            believed = {path.absolute(): ranges for path, ranges in how.believed.items()}
            chosen = replace(chosen, believed=believed, runs={})
        logs, with_keys = [[path.absolute() for path in paths] for paths in (self.key_logs, with_keys)]
        jobs = [
            _ReadJob(
                number,
                source if followed else _absolute(source),
                len(sources),
                bits,
                self.folder,
                chosen,
                logs,
                with_keys,
            )
            for number, source in enumerate(sources)
        ]
        found = []
        results = _read_here(jobs) if followed else self.engine.results(_read_into_folder, jobs)
        for one, source in zip(results, sources, strict=True):
            one.capture.files = tuple(map(str, source.files))
            progress.note_completed(one.capture.packets_count, sum(map(file_size, source.files)))
            found.append(one)
        return found


class SharedPackets:
    """The packets of all hosts in files of a shared folder, by partition; in place of `Partitions`.

    `numbers`: for each host, the number in all captures of each address of its packets. Pickled, it can `take`.
    """

    def __init__(self, bits: int, reader: SharedReader, found: Sequence[_HostRead]) -> None:
        self.bits = bits
        self._reader, self._sights = reader, [one.sights for one in found]
        self._hosts = [one.saved for one in found]
        self._numbers: dict[str, int] = {}
        self.numbers = [
            np.array([self.address_number(text) for text in saved.addresses], dtype=np.uint32) for saved in self._hosts
        ]

    def __len__(self) -> int:
        return 1 << self.bits

    def __getstate__(self) -> dict[str, object]:
        return {"bits": self.bits, "_hosts": self._hosts, "numbers": self.numbers}

    def largest(self, host: int) -> int:
        """The most packets of a host in one partition."""
        return max(rows_count for _, _, rows_count, _ in self._hosts[host].places)

    def sights(self, host: int) -> Sequence[Sighted]:
        """The sights of a sample of a host's packets; addresses are by the numbers of its packets."""
        return self._sights[host]

    def address_number(self, text: str) -> int:
        """The number of an address, new or known."""
        return self._numbers.setdefault(text, len(self._numbers))

    def addresses(self) -> AddressTexts:
        """All addresses, by number."""
        return AddressTexts(pa.array(list(self._numbers), pa.string()))

    def finish(self) -> None:
        """Put 4-tuples that may be one connection into one partition. Raises: as `scan`."""
        if not self.bits:
            return
        moves = moves_of_files([saved.handshakes for saved in self._hosts])
        if len(moves.keys):
            jobs = [_MoveJob(number, saved, self.bits, moves) for number, saved in enumerate(self._hosts)]
            self._hosts = list(self._reader.engine.results(_move, jobs))

    def take(self, number: int, views: Sequence[HostView], is_loopback: NDArray[np.bool_]) -> Taken | None:
        """As `Partitions.take`, but the packets stay: a partition can be taken again."""
        partitions = Partitions(0, len(self._hosts), None)
        own = [view.with_numbers(numbers) for view, numbers in zip(views, self.numbers, strict=True)]
        for host, saved in enumerate(self._hosts):
            partitions.load(0, host, saved.path, saved.places[number])
        return partitions.take(0, own, is_loopback)

    def close(self) -> None:
        """Remove the files."""
        for saved in self._hosts:
            saved.path.unlink(missing_ok=True)
            saved.handshakes.unlink(missing_ok=True)


def _absolute(source: HostSource) -> HostSource:
    """The same files, found from any folder."""
    return replace(source, files=tuple(path.absolute() for path in source.files))


def _read_here(jobs: Sequence[_ReadJob]) -> Iterator[_HostRead]:
    with ThreadPoolExecutor(READERS_COUNT) as pool:
        yield from pool.map(_read_into_folder, jobs)


def _read_into_folder(job: _ReadJob) -> _HostRead:
    """Read a host's captures; its packets go to a file, as do the fingerprints of its handshakes."""
    keys = TlsKeys()
    for path in job.key_logs:
        keys.add_file(path)
    for path in job.captures_with_keys:
        _add_keys(path, keys)
    known_count = keys.connections_count()
    partitions = Partitions(job.bits, job.hosts_count, None)
    progress = CountedProgress(SILENT, 0)
    try:
        capture = read_host(job.number, job.source, partitions, progress, replace(job.how, keys=keys))
        path = job.folder / f"{job.number:05}-{uuid.uuid4().hex[:8]}.packets"
        saved = _save(partitions, job.number, path)
        return _HostRead(capture, partitions.sights(job.number), saved, keys.connections_count() > known_count)
    finally:
        partitions.close()


def _save(partitions: Partitions, number: int, path: Path) -> _Saved:
    handshakes = path.with_suffix(".handshakes")
    partitions.save_handshakes(handshakes)
    return _Saved(path, partitions.save(number, path), partitions.addresses(), handshakes)


def _add_keys(path: Path, keys: TlsKeys) -> None:
    """Add the secrets in a capture to `keys`."""
    with open_capture(path) as reader:
        for _ in reader.rows():
            pass
        reader.add_keys_to(keys)


def _move(job: _MoveJob) -> _Saved:
    """Put a host's packets into other partitions, in a new file."""
    old = job.saved
    partitions = Partitions(job.bits, job.number + 1, None)
    try:
        for text in old.addresses:
            partitions.address_number(text)
        for number, place in enumerate(old.places):
            partitions.load(number, job.number, old.path, place)
        partitions.regroup(job.moves)
        path = old.path.with_name(f"{job.number:05}-{uuid.uuid4().hex[:8]}.packets")
        return replace(old, path=path, places=partitions.save(job.number, path))
    finally:
        partitions.close()


def _with_numbers(capture: HostCapture, numbers: NDArray[np.uint32]) -> HostCapture:
    """`capture` with the addresses in what is known of it by other numbers: n becomes `numbers[n]`."""
    of = numbers.tolist()
    notes, activity = capture.notes, capture.activity
    capture.notes = replace(
        notes,
        pairs={(of[src], of[dst]): count for (src, dst), count in notes.pairs.items()},
        own=frozenset(of[address] for address in notes.own),
        others=frozenset(of[address] for address in notes.others),
        gaps_ns={answer: (of[asker], of[answerer], ns) for answer, (asker, answerer, ns) in notes.gaps_ns.items()},
        servers=frozenset((of[address], port) for address, port in notes.servers),
    )
    capture.activity = replace(
        activity,
        passed=tuple((of[src], of[dst], *rest) for src, dst, *rest in activity.passed),
        passages=tuple((of[src], of[dst], sights) for src, dst, sights in activity.passages),
    )
    capture.named_addresses = frozenset(of[address] for address in capture.named_addresses)
    if capture.copied is not None:
        ways = tuple((of[src], of[dst], *rest) for src, dst, *rest in capture.copied.ways)
        capture.copied = replace(capture.copied, ways=ways)
    return capture


copyreg.pickle(TlsKeys, lambda _: (TlsKeys, ()))  # secrets stay in their process: elsewhere there are none
