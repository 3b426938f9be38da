"""The reconstructor, on servers without sockets: what it rebuilds, what it moves, what it leaves."""

import asyncio
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_cluster import convergence
from storage_cluster.daemons.auditor import ObjectAuditor
from storage_cluster.daemons.daemon import Daemon
from storage_cluster.daemons.object_replicator import ObjectReplicator
from storage_cluster.daemons.reconstructor import Reconstructor
from storage_cluster.erasure import code_of
from storage_cluster.policies import ERASURE_CODING, Policies, Policy
from storage_cluster.ring import path_hash
from storage_cluster.servers.disks import fragments, layout
from storage_cluster.servers.disks.fragments import FragmentDir
from storage_cluster.topology import Device, Intervals
from tests.helpers.in_process_store import InProcessStore

NAMES = ("AUTH_a", "c", "o")
T1, T2, T3 = "1700000001.00000", "1700000002.00000", "1700000003.00000"
POLICIES = Policies(
    (
        Policy("gold", 0, default=True),
        Policy("coded", 1, kind=ERASURE_CODING, data_fragments=2, parity_fragments=1, segment_bytes=64),
    )
)
CODE = code_of(POLICIES, 1)
BODY = bytes(range(200))


@dataclasses.dataclass
class Pieces:
    """One object's fragments on the devices of a store."""

    store: InProcessStore
    name: str = "o"

    def __post_init__(self) -> None:
        self.ring = self.store.rings["object-1"]
        names = ("AUTH_a", "c", self.name)
        self.partition, self.digest = self.ring.partition(*names), path_hash(names, "x")
        self.primaries = self.ring.primaries(self.partition)
        (self.handoff,) = self.ring.handoffs(self.partition)

    def at(self, device: Device) -> FragmentDir:
        assert CODE is not None
        root = self.store.device_dir(device)
        return FragmentDir(root, layout.hash_dir(root, "objects-1", self.partition, self.digest), CODE)

    def write(self, device: Device, index: int, timestamp: str = T1, body: bytes = BODY, durable: bool = True) -> None:
        assert CODE is not None
        stored = self.at(device)
        new = stored.new_file()
        for start in range(0, len(body), CODE.segment_bytes):
            new.write(CODE.encode(body[start : start + CODE.segment_bytes])[index])
        metadata = {
            fragments.INDEX: str(index),
            fragments.SIZE: str(len(body)),
            fragments.ETAG: "whole",
            "X-Object-Meta-A": "1",
        }
        stored.commit_data(new, timestamp, "text/plain", metadata)
        new.close()
        if durable:
            stored.make_durable(timestamp, index)

    def files(self, device: Device) -> list[str]:
        directory = self.at(device).directory
        return sorted(path.name for path in directory.iterdir()) if directory.exists() else []

    def bytes_at(self, device: Device) -> list[bytes]:
        return [(self.at(device).directory / name).read_bytes() for name in self.files(device)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[InProcessStore]:
    with InProcessStore(tmp_path, Intervals(recheck_s=0, reclaim_age_s=1e9), POLICIES) as made:
        yield made


@pytest.fixture
def pieces(store: InProcessStore) -> Pieces:
    return Pieces(store)


def run(pieces: Pieces, device: Device, kind: type[Daemon] = Reconstructor) -> str:
    return asyncio.run(kind(pieces.store.context(device.host)).run_once())  # type: ignore[call-arg]


@pytest.mark.parametrize("lost", [0, 1, 2])
@pytest.mark.parametrize("body", [BODY, b"", b"x", bytes(64)], ids=["4 segments", "empty", "a byte", "one segment"])
def test_a_lost_fragment_is_rebuilt_byte_for_byte(pieces: Pieces, lost: int, body: bytes) -> None:
    for index, device in enumerate(pieces.primaries):
        pieces.write(device, index, body=body)
    before = pieces.bytes_at(pieces.primaries[lost])
    (pieces.at(pieces.primaries[lost]).directory / f"{T1}#{lost}#d.data").unlink()
    other = pieces.primaries[(lost + 1) % 3]
    assert run(pieces, other) == "1 fragments rebuilt"
    assert pieces.files(pieces.primaries[lost]) == [f"{T1}#{lost}#d.data"]
    assert pieces.bytes_at(pieces.primaries[lost]) == before
    assert run(pieces, other) == ""
    assert convergence.disagreements(pieces.store.root / "data", pieces.store.rings) == []


def test_metadata_deletions_and_newer_versions_go_to_all(pieces: Pieces) -> None:
    for index, device in enumerate(pieces.primaries):
        pieces.write(device, index)
    pieces.at(pieces.primaries[0]).write_meta(T2, "", {"X-Object-Meta-A": "2"})
    assert run(pieces, pieces.primaries[0]) == "2 files pushed"
    assert [pieces.files(device)[1] for device in pieces.primaries] == [f"{T2}.meta"] * 3
    pieces.at(pieces.primaries[1]).write_tombstone(T3)
    run(pieces, pieces.primaries[0])
    assert pieces.files(pieces.primaries[1]) == [f"{T3}.ts"]  # what is older is not brought back
    run(pieces, pieces.primaries[1])
    assert [pieces.files(device) for device in pieces.primaries] == [[f"{T3}.ts"]] * 3


def test_an_older_version_is_replaced(pieces: Pieces) -> None:
    pieces.write(pieces.primaries[2], 2, T1)
    for index in (0, 1):
        pieces.write(pieces.primaries[index], index, T2)
    assert run(pieces, pieces.primaries[0]) == "1 fragments rebuilt"
    assert pieces.files(pieces.primaries[2]) == [f"{T2}#2#d.data"]


def test_durability_spreads_without_bytes(pieces: Pieces) -> None:
    for index, device in enumerate(pieces.primaries):
        pieces.write(device, index, durable=index == 0)
    assert run(pieces, pieces.primaries[1]) == ""
    assert run(pieces, pieces.primaries[0]) == ""
    assert [pieces.files(device) for device in pieces.primaries] == [[f"{T1}#{index}#d.data"] for index in range(3)]
    assert {asked.method for asked in pieces.store.requests} == {"REPLICATE", "SSYNC"}


def test_what_is_not_durable_anywhere_stays_and_is_not_spread(pieces: Pieces) -> None:
    pieces.write(pieces.primaries[0], 0, durable=False)
    pieces.write(pieces.primaries[1], 1, durable=False)
    assert run(pieces, pieces.primaries[0]) == ""
    assert [pieces.files(device) for device in pieces.primaries] == [[f"{T1}#0.data"], [f"{T1}#1.data"], []]


def test_what_never_became_durable_goes_after_a_while(tmp_path: Path) -> None:
    with InProcessStore(tmp_path, Intervals(reclaim_age_s=3600), POLICIES) as store:
        pieces = Pieces(store)
        pieces.write(pieces.primaries[0], 0, T1, durable=False)
        run(pieces, pieces.primaries[0])
        assert pieces.files(pieces.primaries[0]) == []


def test_a_handoff_gives_its_fragment_to_its_device_only_and_is_emptied(pieces: Pieces) -> None:
    for index in (0, 1):
        pieces.write(pieces.primaries[index], index)
    pieces.write(pieces.handoff, 2)
    whole = pieces.bytes_at(pieces.handoff)
    pieces.store.down = {pieces.primaries[2].host}
    run(pieces, pieces.handoff)
    assert pieces.files(pieces.handoff) == [f"{T1}#2#d.data"]
    pieces.store.down = set()
    assert run(pieces, pieces.handoff) == "1 files pushed, 1 fragments of other devices sent home"
    assert pieces.bytes_at(pieces.primaries[2]) == whole
    assert pieces.files(pieces.handoff) == []
    assert pieces.files(pieces.primaries[0]) == [f"{T1}#0#d.data"]
    assert not (pieces.store.device_dir(pieces.handoff) / "objects-1" / str(pieces.partition)).exists()


def test_a_handoff_gives_a_deletion_to_all(pieces: Pieces) -> None:
    for index, device in enumerate(pieces.primaries):
        pieces.write(device, index)
    pieces.at(pieces.handoff).write_tombstone(T2)
    run(pieces, pieces.handoff)
    assert [pieces.files(device) for device in pieces.primaries] == [[f"{T2}.ts"]] * 3
    assert pieces.files(pieces.handoff) == []


def test_a_fragment_of_another_index_goes_home_and_its_own_is_rebuilt(pieces: Pieces) -> None:
    pieces.write(pieces.primaries[0], 1)  # as after a change of the ring
    pieces.write(pieces.primaries[2], 2)
    assert "1 fragments of other devices sent home" in run(pieces, pieces.primaries[0])
    assert [pieces.files(device) for device in pieces.primaries] == [[], [f"{T1}#1#d.data"], [f"{T1}#2#d.data"]]
    run(pieces, pieces.primaries[1])
    assert convergence.disagreements(pieces.store.root / "data", pieces.store.rings) == []


def test_too_few_fragments_are_left_alone_and_hold_up_no_other_object(pieces: Pieces) -> None:
    same = next(name for n in range(1000) if Pieces(pieces.store, name := f"o{n}").partition == pieces.partition)
    other = Pieces(pieces.store, same)
    pieces.write(pieces.primaries[0], 0)
    for index in (0, 1):
        other.write(pieces.primaries[index], index)
    said = run(pieces, pieces.primaries[0])
    assert said == "1 fragments rebuilt, 2 fragments not rebuilt"
    assert pieces.files(pieces.primaries[0]) == [f"{T1}#0#d.data"]
    assert other.files(pieces.primaries[2]) == [f"{T1}#2#d.data"]


def test_a_damaged_fragment_is_not_built_upon(pieces: Pieces) -> None:
    for index in (0, 1):
        pieces.write(pieces.primaries[index], index)
    file = pieces.at(pieces.primaries[1]).directory / f"{T1}#1#d.data"
    file.write_bytes(b"\0" + file.read_bytes()[1:])
    assert run(pieces, pieces.primaries[0]) == "1 fragments not rebuilt"
    assert pieces.files(pieces.primaries[2]) == []


def test_the_auditor_puts_a_damaged_fragment_aside_and_it_is_rebuilt(pieces: Pieces) -> None:
    for index, device in enumerate(pieces.primaries):
        pieces.write(device, index)
    file = pieces.at(pieces.primaries[1]).directory / f"{T1}#1#d.data"
    whole = file.read_bytes()
    file.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    assert run(pieces, pieces.primaries[1], ObjectAuditor) == "1 damaged objects quarantined"
    run(pieces, pieces.primaries[0])
    assert file.read_bytes() == whole


def test_replicators_leave_fragments_to_it_and_it_leaves_replicas_to_them(pieces: Pieces) -> None:
    pieces.write(pieces.primaries[0], 0)
    partition, primaries, _, digest = pieces.store.place(*NAMES)
    pieces.store.write(primaries[0], partition, digest, T1)
    run(pieces, pieces.primaries[0], ObjectReplicator)
    assert pieces.files(pieces.primaries[1]) == []
    pieces.store.requests.clear()
    pieces.store.write(primaries[0], partition, digest, T2)
    run(pieces, primaries[0])
    assert pieces.store.files(primaries[1], partition, digest) in ([], [f"{T1}.data"])


@pytest.mark.parametrize("differs", ["missing", "elsewhere", "damaged", "another version", "another index"])
def test_a_check_of_the_store_notices_what_differs(pieces: Pieces, differs: str) -> None:
    for index, device in enumerate(pieces.primaries):
        pieces.write(device, index)
    file = pieces.at(pieces.primaries[1]).directory / f"{T1}#1#d.data"
    if differs == "missing":
        file.unlink()
    elif differs == "elsewhere":
        pieces.write(pieces.handoff, 1)
    elif differs == "damaged":
        file.write_bytes(b"\0" + file.read_bytes()[1:])
    elif differs == "another version":
        pieces.write(pieces.primaries[1], 1, T2)
    else:
        pieces.write(pieces.primaries[1], 2)
    assert len(convergence.disagreements(pieces.store.root / "data", pieces.store.rings)) >= 1
