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
class Coded:
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
def coded(store: InProcessStore) -> Coded:
    return Coded(store)


def run(coded: Coded, device: Device, kind: type[Daemon] = Reconstructor) -> str:
    return asyncio.run(kind(coded.store.context(device.host)).run_once())  # type: ignore[call-arg]


@pytest.mark.parametrize("lost", [0, 1, 2])
@pytest.mark.parametrize("body", [BODY, b"", b"x", bytes(64)], ids=["4 segments", "empty", "a byte", "one segment"])
def test_a_lost_fragment_is_rebuilt_byte_for_byte(coded: Coded, lost: int, body: bytes) -> None:
    for index, device in enumerate(coded.primaries):
        coded.write(device, index, body=body)
    before = coded.bytes_at(coded.primaries[lost])
    (coded.at(coded.primaries[lost]).directory / f"{T1}#{lost}#d.data").unlink()
    other = coded.primaries[(lost + 1) % 3]
    assert run(coded, other) == "1 fragments rebuilt"
    assert coded.files(coded.primaries[lost]) == [f"{T1}#{lost}#d.data"]
    assert coded.bytes_at(coded.primaries[lost]) == before
    assert run(coded, other) == ""
    assert convergence.disagreements(coded.store.root / "data", coded.store.rings) == []


def test_metadata_deletions_and_newer_versions_go_to_all(coded: Coded) -> None:
    for index, device in enumerate(coded.primaries):
        coded.write(device, index)
    coded.at(coded.primaries[0]).write_meta(T2, "", {"X-Object-Meta-A": "2"})
    assert run(coded, coded.primaries[0]) == "2 files pushed"
    assert [coded.files(device)[1] for device in coded.primaries] == [f"{T2}.meta"] * 3
    coded.at(coded.primaries[1]).write_tombstone(T3)
    run(coded, coded.primaries[0])
    assert coded.files(coded.primaries[1]) == [f"{T3}.ts"]  # what is older is not brought back
    run(coded, coded.primaries[1])
    assert [coded.files(device) for device in coded.primaries] == [[f"{T3}.ts"]] * 3


def test_an_older_version_is_replaced(coded: Coded) -> None:
    coded.write(coded.primaries[2], 2, T1)
    for index in (0, 1):
        coded.write(coded.primaries[index], index, T2)
    assert run(coded, coded.primaries[0]) == "1 fragments rebuilt"
    assert coded.files(coded.primaries[2]) == [f"{T2}#2#d.data"]


def test_durability_spreads_without_bytes(coded: Coded) -> None:
    for index, device in enumerate(coded.primaries):
        coded.write(device, index, durable=index == 0)
    assert run(coded, coded.primaries[1]) == ""
    assert run(coded, coded.primaries[0]) == ""
    assert [coded.files(device) for device in coded.primaries] == [[f"{T1}#{index}#d.data"] for index in range(3)]
    assert {asked.method for asked in coded.store.requests} == {"REPLICATE", "SSYNC"}


def test_what_is_not_durable_anywhere_stays_and_is_not_spread(coded: Coded) -> None:
    coded.write(coded.primaries[0], 0, durable=False)
    coded.write(coded.primaries[1], 1, durable=False)
    assert run(coded, coded.primaries[0]) == ""
    assert [coded.files(device) for device in coded.primaries] == [[f"{T1}#0.data"], [f"{T1}#1.data"], []]


def test_what_never_became_durable_goes_after_a_while(tmp_path: Path) -> None:
    with InProcessStore(tmp_path, Intervals(reclaim_age_s=3600), POLICIES) as store:
        coded = Coded(store)
        coded.write(coded.primaries[0], 0, T1, durable=False)
        run(coded, coded.primaries[0])
        assert coded.files(coded.primaries[0]) == []


def test_a_handoff_gives_its_fragment_to_its_device_only_and_is_emptied(coded: Coded) -> None:
    for index in (0, 1):
        coded.write(coded.primaries[index], index)
    coded.write(coded.handoff, 2)
    whole = coded.bytes_at(coded.handoff)
    coded.store.down = {coded.primaries[2].host}
    run(coded, coded.handoff)
    assert coded.files(coded.handoff) == [f"{T1}#2#d.data"]
    coded.store.down = set()
    assert run(coded, coded.handoff) == "1 files pushed, 1 fragments of other devices sent home"
    assert coded.bytes_at(coded.primaries[2]) == whole
    assert coded.files(coded.handoff) == []
    assert coded.files(coded.primaries[0]) == [f"{T1}#0#d.data"]
    assert not (coded.store.device_dir(coded.handoff) / "objects-1" / str(coded.partition)).exists()


def test_a_handoff_gives_a_deletion_to_all(coded: Coded) -> None:
    for index, device in enumerate(coded.primaries):
        coded.write(device, index)
    coded.at(coded.handoff).write_tombstone(T2)
    run(coded, coded.handoff)
    assert [coded.files(device) for device in coded.primaries] == [[f"{T2}.ts"]] * 3
    assert coded.files(coded.handoff) == []


def test_a_fragment_of_another_index_goes_home_and_its_own_is_rebuilt(coded: Coded) -> None:
    coded.write(coded.primaries[0], 1)  # as after a change of the ring
    coded.write(coded.primaries[2], 2)
    assert "1 fragments of other devices sent home" in run(coded, coded.primaries[0])
    assert [coded.files(device) for device in coded.primaries] == [[], [f"{T1}#1#d.data"], [f"{T1}#2#d.data"]]
    run(coded, coded.primaries[1])
    assert convergence.disagreements(coded.store.root / "data", coded.store.rings) == []


def test_too_few_fragments_are_left_alone_and_hold_up_no_other_object(coded: Coded) -> None:
    same = next(name for n in range(1000) if Coded(coded.store, name := f"o{n}").partition == coded.partition)
    other = Coded(coded.store, same)
    coded.write(coded.primaries[0], 0)
    for index in (0, 1):
        other.write(coded.primaries[index], index)
    said = run(coded, coded.primaries[0])
    assert said == "1 fragments rebuilt, 2 fragments not rebuilt"
    assert coded.files(coded.primaries[0]) == [f"{T1}#0#d.data"]
    assert other.files(coded.primaries[2]) == [f"{T1}#2#d.data"]


def test_a_damaged_fragment_is_not_built_upon(coded: Coded) -> None:
    for index in (0, 1):
        coded.write(coded.primaries[index], index)
    file = coded.at(coded.primaries[1]).directory / f"{T1}#1#d.data"
    file.write_bytes(b"\0" + file.read_bytes()[1:])
    assert run(coded, coded.primaries[0]) == "1 fragments not rebuilt"
    assert coded.files(coded.primaries[2]) == []


def test_the_auditor_puts_a_damaged_fragment_aside_and_it_is_rebuilt(coded: Coded) -> None:
    for index, device in enumerate(coded.primaries):
        coded.write(device, index)
    file = coded.at(coded.primaries[1]).directory / f"{T1}#1#d.data"
    whole = file.read_bytes()
    file.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    assert run(coded, coded.primaries[1], ObjectAuditor) == "1 damaged objects quarantined"
    run(coded, coded.primaries[0])
    assert file.read_bytes() == whole


def test_replicators_leave_fragments_to_it_and_it_leaves_replicas_to_them(coded: Coded) -> None:
    coded.write(coded.primaries[0], 0)
    partition, primaries, _, digest = coded.store.place(*NAMES)
    coded.store.write(primaries[0], partition, digest, T1)
    run(coded, coded.primaries[0], ObjectReplicator)
    assert coded.files(coded.primaries[1]) == []
    coded.store.requests.clear()
    coded.store.write(primaries[0], partition, digest, T2)
    run(coded, primaries[0])
    assert coded.store.files(primaries[1], partition, digest) in ([], [f"{T1}.data"])


@pytest.mark.parametrize("differs", ["missing", "elsewhere", "damaged", "another version", "another index"])
def test_a_check_of_the_store_notices_what_differs(coded: Coded, differs: str) -> None:
    for index, device in enumerate(coded.primaries):
        coded.write(device, index)
    file = coded.at(coded.primaries[1]).directory / f"{T1}#1#d.data"
    if differs == "missing":
        file.unlink()
    elif differs == "elsewhere":
        coded.write(coded.handoff, 1)
    elif differs == "damaged":
        file.write_bytes(b"\0" + file.read_bytes()[1:])
    elif differs == "another version":
        coded.write(coded.primaries[1], 1, T2)
    else:
        coded.write(coded.primaries[1], 2)
    assert len(convergence.disagreements(coded.store.root / "data", coded.store.rings)) >= 1
