"""Daemons one by one, on servers without sockets: what they move, what they leave, when they keep quiet."""

import asyncio
import dataclasses
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_cluster.daemons.auditor import DatabaseAuditor, ObjectAuditor
from storage_cluster.daemons.daemon import Daemon, run_forever
from storage_cluster.daemons.database_replicator import DatabaseReplicator, Place, places
from storage_cluster.daemons.expirer import Expirer
from storage_cluster.daemons.object_replicator import ObjectReplicator
from storage_cluster.daemons.reaper import Reaper
from storage_cluster.daemons.requests import DaemonRequests
from storage_cluster.daemons.updaters import ContainerUpdater, ObjectUpdater
from storage_cluster.ring import path_hash
from storage_cluster.servers.databases.container_db import ContainerDatabase, ObjectRow
from storage_cluster.servers.databases.updates import PendingUpdates, Update
from storage_cluster.servers.http.backend import Backend, BackendAnswer
from storage_cluster.servers.object.expiry import queue_entry, timestamp_text
from storage_cluster.servers.object.replication import object_dir
from storage_cluster.topology import Device, Intervals, Service, Topology
from tests.helpers.in_process_store import HOSTS, InProcessStore

NAMES = ("AUTH_a", "c", "o")
T1, T2, T3 = "1700000001.00000", "1700000002.00000", "1700000003.00000"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[InProcessStore]:
    with InProcessStore(tmp_path) as made:
        yield made


def once(daemon: Daemon) -> str:
    return asyncio.run(daemon.run_once())


def ask(store: InProcessStore, service: str, device: Device, method: str, path: str, **headers: str) -> int:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = asyncio.run(store.request(store.service(service, device), method, f"/{device.name}/{path}", sent))
    return answer.status


def rows(store: InProcessStore, device: Device, *names: str) -> list[str]:
    """The names that a container's replica on a device lists."""
    partition, _, _, digest = store.place(*names)
    file = store.device_dir(device) / "containers" / str(partition) / digest[-3:] / digest / f"{digest}.db"
    if not file.exists():
        return []
    database = ContainerDatabase(file, create=False)
    found, _ = database.changes_after(0, -1)
    database.close()
    return sorted(row.name for row in found if not row.deleted)


class TestObjectReplicator:
    def test_it_sends_what_the_others_lack_and_nothing_else(self, store: InProcessStore) -> None:
        partition, primaries, _, digest = store.place(*NAMES)
        store.write(primaries[0], partition, digest, T2, b"new")
        store.write(primaries[1], partition, digest, T1, b"old")
        assert once(ObjectReplicator(store.context(primaries[0].host))) == "2 files pushed"
        for device in primaries:
            assert store.files(device, partition, digest) == [f"{T2}.data"]
        assert once(ObjectReplicator(store.context(primaries[1].host))) == ""

    def test_an_older_version_is_not_pushed_over_a_newer_one(self, store: InProcessStore) -> None:
        partition, primaries, _, digest = store.place(*NAMES)
        store.write(primaries[0], partition, digest, T1)
        object_dir(store.device_dir(primaries[1]), partition, digest).write_tombstone(T2)
        once(ObjectReplicator(store.context(primaries[0].host)))
        assert store.files(primaries[1], partition, digest) == [f"{T2}.ts"]

    def test_metadata_of_a_later_post_goes_with_its_body(self, store: InProcessStore) -> None:
        partition, primaries, _, digest = store.place(*NAMES)
        store.write(primaries[0], partition, digest, T1)
        object_dir(store.device_dir(primaries[0]), partition, digest).write_meta(T2, "", {"X-Object-Meta-A": "1"})
        once(ObjectReplicator(store.context(primaries[0].host)))
        info = object_dir(store.device_dir(primaries[2]), partition, digest).read_info()
        assert info is not None
        assert (info.timestamp, info.metadata) == (T2, {"X-Object-Meta-A": "1"})

    def test_a_handoff_is_emptied_only_when_all_primaries_have_it(self, store: InProcessStore) -> None:
        partition, primaries, handoff, digest = store.place(*NAMES)
        store.write(handoff, partition, digest, T1)
        store.down = {primaries[2].host}
        once(ObjectReplicator(store.context(handoff.host)))
        assert store.files(primaries[0], partition, digest) == [f"{T1}.data"]
        assert store.files(handoff, partition, digest) == [f"{T1}.data"]
        store.down = set()
        assert "1 handoff partitions emptied" in once(ObjectReplicator(store.context(handoff.host)))
        assert store.files(primaries[2], partition, digest) == [f"{T1}.data"]
        assert not (store.device_dir(handoff) / "objects" / str(partition)).exists()

    def test_a_damaged_file_is_not_spread(self, store: InProcessStore) -> None:
        partition, primaries, _, digest = store.place(*NAMES)
        store.write(primaries[0], partition, digest, T1, b"precious")
        file = object_dir(store.device_dir(primaries[0]), partition, digest).directory / f"{T1}.data"
        file.write_bytes(b"P" + file.read_bytes()[1:])
        assert once(ObjectReplicator(store.context(primaries[0].host))) == "1 damaged objects quarantined"
        assert all(store.files(device, partition, digest) == [] for device in primaries)

    def test_what_all_agreed_on_is_left_alone_until_it_changes(self, tmp_path: Path) -> None:
        with InProcessStore(tmp_path, Intervals(recheck_s=3600)) as store:
            partition, primaries, _, digest = store.place(*NAMES)
            store.write(primaries[0], partition, digest, T1)
            replicator = ObjectReplicator(store.context(primaries[0].host))
            once(replicator)
            store.requests.clear()
            once(replicator)
            assert store.requests == []
            store.write(primaries[0], partition, digest, T2)
            once(replicator)
            assert [asked.method for asked in store.requests] == [*["REPLICATE"] * 2, *["SSYNC", "PUT"] * 2]

    def test_old_tombstones_are_forgotten(self, store: InProcessStore) -> None:
        partition, primaries, _, digest = store.place(*NAMES)
        for device in primaries:
            object_dir(store.device_dir(device), partition, digest).write_tombstone(T1)
        assert once(ObjectReplicator(store.context(primaries[0].host))) == "1 tombstones reclaimed"
        assert store.files(primaries[0], partition, digest) == []
        assert once(ObjectReplicator(store.context(primaries[1].host))) == "1 tombstones reclaimed"
        assert store.files(primaries[0], partition, digest) == []

    def test_all_partitions_are_compared_in_one_request_to_each_device(self, store: InProcessStore) -> None:
        for number in range(20):
            partition, _, _, digest = store.place("AUTH_a", "c", f"o{number}")
            for host in HOSTS:
                if any(device.host == host for device in store.rings["object"].primaries(partition)):
                    store.write(Device(host, "d", 0), partition, digest, T1)
        assert once(ObjectReplicator(store.context("one"))) == ""
        assert [(asked.method, asked.path) for asked in store.requests] == [("REPLICATE", "/d")] * 3

    @pytest.mark.parametrize("body", [b"", b"{}x", b"7", b'["x"]', b"[[]]"])
    def test_a_server_refuses_what_is_no_list_of_partitions(self, store: InProcessStore, body: bytes) -> None:
        service = store.topology.service("object", "one")
        assert asyncio.run(store.request(service, "REPLICATE", "/d", {}, body)).status == 400

    @pytest.mark.parametrize(
        ("path", "status"),
        [("x/0", 507), ("d/x", 400), ("d/0/../../x", 400), ("d/0/" + "a" * 32 + "/1.exe", 400), ("d/0", 400)],
    )
    def test_a_server_refuses_what_is_no_file_of_an_object(self, store: InProcessStore, path: str, status: int) -> None:
        service = store.topology.service("object", "one")
        mark = {"X-Backend-Replication": "True"}
        assert asyncio.run(store.request(service, "PUT", f"/{path}", mark, b"x")).status == status


class TestDatabaseReplicator:
    def make(self, store: InProcessStore, *devices: Device) -> None:
        partition, _, _, _ = store.place("AUTH_a", "c")
        for device in devices:
            assert ask(store, "container", device, "PUT", f"{partition}/AUTH_a/c", X_Timestamp=T1) == 201

    def put(self, store: InProcessStore, device: Device, name: str, method: str = "PUT", at: str = T2) -> None:
        partition, _, _, _ = store.place("AUTH_a", "c")
        path = f"{partition}/AUTH_a/c/{name}"
        status = ask(store, "container", device, method, path, X_Timestamp=at, X_Size="1", X_Etag="e")
        assert status in (201, 204)

    def replicate(self, store: InProcessStore, device: Device) -> str:
        return once(DatabaseReplicator(store.context(device.host), "container"))

    def test_rows_go_both_ways_and_only_once(self, store: InProcessStore) -> None:
        _, (first, second, third), _, _ = store.place("AUTH_a", "c")
        self.make(store, first, second)
        self.put(store, first, "a")
        self.put(store, second, "b")
        assert self.replicate(store, first) == "2 rows pushed"
        assert self.replicate(store, second) == "2 rows pushed"
        assert [rows(store, device, "AUTH_a", "c") for device in (first, second, third)] == [["a", "b"]] * 3
        store.requests.clear()
        assert self.replicate(store, first) == ""
        assert len(store.requests) == 2
        self.put(store, first, "a", "DELETE", f"{time.time():.5f}")
        assert self.replicate(store, first) == "2 rows pushed"
        assert rows(store, third, "AUTH_a", "c") == ["b"]

    def test_deletion_and_metadata_go_along(self, store: InProcessStore) -> None:
        partition, (first, second, _), _, _ = store.place("AUTH_a", "c")
        self.make(store, first, second)
        colour = {"X_Container_Meta_Colour": "blue"}
        assert ask(store, "container", first, "POST", f"{partition}/AUTH_a/c", X_Timestamp=T2, **colour) == 204
        self.replicate(store, first)
        service = store.service("container", second)
        answer = asyncio.run(store.request(service, "HEAD", f"/d/{partition}/AUTH_a/c", {}))
        assert answer.headers["X-Container-Meta-Colour"] == "blue"
        now = f"{time.time():.5f}"
        assert ask(store, "container", first, "DELETE", f"{partition}/AUTH_a/c", X_Timestamp=now) == 204
        self.replicate(store, first)
        assert ask(store, "container", second, "HEAD", f"{partition}/AUTH_a/c") == 404

    def test_a_handoff_goes_when_all_primaries_have_its_rows(self, store: InProcessStore) -> None:
        partition, primaries, handoff, _ = store.place("AUTH_a", "c")
        self.make(store, handoff)
        self.put(store, handoff, "a")
        store.down = {primaries[0].host}
        self.replicate(store, handoff)
        assert rows(store, handoff, "AUTH_a", "c") == ["a"]
        store.down = set()
        assert "1 databases removed" in self.replicate(store, handoff)
        assert not (store.device_dir(handoff) / "containers" / str(partition)).exists()
        assert all(rows(store, device, "AUTH_a", "c") == ["a"] for device in primaries)

    def test_a_handoff_that_has_changed_since_stays(self, store: InProcessStore) -> None:
        partition, _, handoff, digest = store.place("AUTH_a", "c")
        self.make(store, handoff)
        file = store.device_dir(handoff) / "containers" / str(partition) / digest[-3:] / digest / f"{digest}.db"
        database = ContainerDatabase(file, create=False)
        state = database.state()
        database.close()
        self.put(store, handoff, "late")
        replicator = DatabaseReplicator(store.context(handoff.host), "container")
        place = next(iter(_places(store, handoff)))
        asyncio.run(replicator._discard(place, state))
        assert rows(store, handoff, "AUTH_a", "c") == ["late"]

    def test_many_rows_go_in_several_messages(self, store: InProcessStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("storage_cluster.daemons.database_replicator.ROWS_MAX", 3)
        _, (first, second, third), _, _ = store.place("AUTH_a", "c")
        self.make(store, first)
        for number in range(8):
            self.put(store, first, f"o{number}")
        assert self.replicate(store, first) == "16 rows pushed"
        assert [len(rows(store, device, "AUTH_a", "c")) for device in (first, second, third)] == [8, 8, 8]
        self.put(store, first, "late")
        store.requests.clear()
        self.replicate(store, first)
        messages = [json.loads(asked.body) for asked in store.requests]
        assert [len(message["rows"]) for message in messages if message["op"] == "rows"] == [1, 1]

    def test_deleted_names_are_forgotten_in_time(self, store: InProcessStore) -> None:
        _, (first, _, _), _, _ = store.place("AUTH_a", "c")
        self.make(store, first)
        self.put(store, first, "kept")
        self.put(store, first, "gone", "DELETE")
        self.replicate(store, first)
        (place,) = _places(store, first)
        database = ContainerDatabase(place.file, create=False)
        found, _ = database.changes_after(0, -1)
        assert [row.name for row in found] == ["kept"]
        assert database.trouble() == ""
        database.close()

    @pytest.mark.parametrize(
        "body", [b"", b"[]", b"{}", b'{"op": "close"}', b'{"op": "sync"}', b'{"op":"sync","state":{}}']
    )
    def test_a_server_refuses_what_is_no_message(self, store: InProcessStore, body: bytes) -> None:
        service = store.topology.service("container", "one")
        path = "/d/3/" + "a" * 32
        assert asyncio.run(store.request(service, "REPLICATE", path, {}, body)).status == 400


def _places(store: InProcessStore, device: Device) -> list[Place]:
    return places(store.context(device.host), "container")


def test_the_object_auditor_puts_aside_what_is_damaged(store: InProcessStore) -> None:
    for number in range(4):
        partition, _, _, digest = store.place("AUTH_a", "c", f"o{number}")
        store.write(Device("one", "d", 0), partition, digest, T1, b"precious")
    (damaged, *_) = sorted((store.root / "data" / "one" / "d" / "objects").glob("**/*.data"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert once(ObjectAuditor(store.context("one"))) == "1 damaged objects quarantined"
    assert not damaged.exists()
    assert once(ObjectAuditor(store.context("one"))) == ""


def test_the_container_auditor_finds_a_flipped_bit_that_sqlite_does_not(store: InProcessStore) -> None:
    partition, (first, *_), _, _ = store.place("AUTH_a", "c")
    ask(store, "container", first, "PUT", f"{partition}/AUTH_a/c", X_Timestamp=T1)
    ask(store, "container", first, "PUT", f"{partition}/AUTH_a/c/name", X_Timestamp=T2, X_Size="1", X_Etag="etag")
    (place,) = _places(store, first)
    auditor = DatabaseAuditor(store.context(first.host), "container")
    assert once(auditor) == ""
    database = ContainerDatabase(place.file, create=False)
    database._sql.execute("UPDATE object SET etag = 'etaf'")
    database.close()
    assert once(auditor) == "1 damaged databases quarantined"
    assert not place.file.exists()


def test_the_container_updater_reports_to_all_replicas_of_the_account_once(store: InProcessStore) -> None:
    partition, (first, *_), _, _ = store.place("AUTH_a", "c")
    account_partition, holders, _, _ = store.place("AUTH_a")
    for device in holders:
        ask(store, "account", device, "PUT", f"{account_partition}/AUTH_a", X_Timestamp=T1)
    ask(store, "container", first, "PUT", f"{partition}/AUTH_a/c", X_Timestamp=T1)
    updater = ContainerUpdater(store.context(first.host))
    assert once(updater) == "1 containers reported"
    assert once(updater) == ""
    ask(store, "container", first, "PUT", f"{partition}/AUTH_a/c/o", X_Timestamp=T2, X_Size="7")
    store.down = {holders[1].host}
    assert once(updater) == ""
    store.down = set()
    assert once(updater) == "1 containers reported"
    for device in holders:
        path = f"/d/{account_partition}/AUTH_a"
        answer = asyncio.run(store.request(store.service("account", device), "HEAD", path, {}))
        assert answer.headers["X-Account-Bytes-Used"] == "7"


def test_the_object_updater_keeps_an_update_until_all_replicas_have_accepted_it(store: InProcessStore) -> None:
    partition, primaries, _, _ = store.place("AUTH_a", "c")
    for device in primaries[:2]:
        ask(store, "container", device, "PUT", f"{partition}/AUTH_a/c", X_Timestamp=T1)
    headers = {"X-Timestamp": T2, "X-Size": "1", "X-Etag": "e", "X-Content-Type": "t"}
    pending = PendingUpdates(store.root / "data" / "one" / "d")
    pending.add(Update("PUT", NAMES, headers), "tx1")
    updater = ObjectUpdater(store.context("one"))
    store.down = {primaries[0].host}
    assert once(updater) == ""
    assert len(list(pending.read())) == 1
    assert rows(store, primaries[1], "AUTH_a", "c") == ["o"]
    store.down = set()
    store.requests.clear()
    assert once(updater) == "1 updates delivered"
    assert {asked.host for asked in store.requests} == {primaries[0].host}  # the others had heard
    assert list(pending.read()) == []
    assert rows(store, primaries[0], "AUTH_a", "c") == ["o"]


def test_the_expirer_deletes_what_is_due_and_leaves_what_was_given_another_time(store: InProcessStore) -> None:
    now_s = int(time.time())
    due, later = timestamp_text(now_s - 5), timestamp_text(now_s + 3600)
    for name, delete_at in (("due", due), ("changed", later)):
        partition, primaries, _, _ = store.place("AUTH_a", "c", name)
        for device in primaries:
            path = f"{partition}/AUTH_a/c/{name}"
            assert ask(store, "object", device, "PUT", path, X_Timestamp=T1, X_Delete_At=delete_at) == 201
    stale = queue_entry(int(due), ("AUTH_a", "c", "changed"), "0")
    _enqueue(store, stale.names)
    for host in HOSTS:  # the queue's container must be known to its account
        once(ContainerUpdater(store.context(host)))
    did = [once(Expirer(store.context(host))) for host in HOSTS]
    assert sorted(did) == ["", "", "", "1 objects expired"]
    for name, gone in (("due", True), ("changed", False)):
        partition, primaries, _, digest = store.place("AUTH_a", "c", name)
        for device in primaries:
            assert store.files(device, partition, digest)[0].endswith(".ts") is gone
    entry = queue_entry(int(due), ("AUTH_a", "c", "due"), path_hash(("AUTH_a", "c", "due"), ""))
    for names in (entry.names, stale.names):
        _, holders, _, _ = store.place(*names[:2])
        assert [rows(store, device, *names[:2]) for device in holders] == [[], [], []]


def _enqueue(store: InProcessStore, names: tuple[str, str, str]) -> None:
    partition, holders, _, _ = store.place(*names[:2])
    for device in holders:
        path = f"{partition}/{'/'.join(names)}"
        assert ask(store, "container", device, "PUT", path, X_Timestamp=T1, X_Size="0", X_Etag="e") == 201


def test_the_reaper_empties_deleted_accounts_only(store: InProcessStore) -> None:
    for account in ("AUTH_gone", "AUTH_stays"):
        account_partition, holders, _, _ = store.place(account)
        for device in holders:
            ask(store, "account", device, "PUT", f"{account_partition}/{account}", X_Timestamp=T1)
        partition, primaries, _, _ = store.place(account, "c")
        for device in primaries:
            ask(store, "container", device, "PUT", f"{partition}/{account}/c", X_Timestamp=T1)
            ask(store, "container", device, "PUT", f"{partition}/{account}/c/o", X_Timestamp=T2, X_Size="1", X_Etag="e")
        partition, primaries, _, digest = store.place(account, "c", "o")
        for device in primaries:
            store.write(device, partition, digest, T2)
    for host in HOSTS:
        once(ContainerUpdater(store.context(host)))
    account_partition, holders, _, _ = store.place("AUTH_gone")
    for device in holders:
        ask(store, "account", device, "DELETE", f"{account_partition}/AUTH_gone", X_Timestamp=T3)
    did = [once(Reaper(store.context(host))) for host in HOSTS]
    assert sorted(did) == ["", "", "", "1 objects reaped, 1 containers reaped"]
    for account, names in (("AUTH_gone", []), ("AUTH_stays", ["o"])):
        _, primaries, _, _ = store.place(account, "c")
        assert [rows(store, device, account, "c") for device in primaries] == [names] * 3


def test_who_is_silent_is_asked_once_in_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def request(_: Backend, service: Service, *__: object) -> BackendAnswer:
        asked.append(service.address)
        return BackendAnswer(0 if service.address == "silent" else 200)

    async def upload(_: Backend, service: Service, *__: object) -> None:
        asked.append(service.address)

    async def one_pass(requests: DaemonRequests) -> list[int]:
        requests.begin_pass()
        services = [Service("object", "", address, 1) for address in ("silent", "well", "silent", "well")]
        statuses = [(await requests.request(service, "GET", "/", {})).status for service in services]
        assert await requests.upload(services[0], "/", {}) is None
        return statuses

    monkeypatch.setattr(Backend, "request", request)
    monkeypatch.setattr(Backend, "upload", upload)
    requests = DaemonRequests(Topology((), ()), {}, "object-replicator")
    assert asyncio.run(one_pass(requests)) == asyncio.run(one_pass(requests)) == [0, 200, 0, 200]
    assert asked == ["silent", "well", "well"] * 2
    assert requests.user_agent == f"object-replicator {os.getpid()}"


@dataclasses.dataclass
class Failing:
    """A daemon whose second pass meets a full disk."""

    passes: int = 0

    async def run_once(self) -> str:
        self.passes += 1
        if self.passes == 2:
            raise OSError(28, "No space left on device")
        return f"pass {self.passes}"


def test_a_pass_that_a_disk_broke_off_is_followed_by_another() -> None:
    said: list[str] = []
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 4:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run_forever(Failing(), 7.0, said.append, lambda: None, sleep))
    assert [line.partition(" (")[0] for line in said] == [
        "pass 1",
        "pass broken off: [Errno 28] No space left on device",
        "pass 3",
    ]
    assert 0 <= slept[0] <= 7
    assert all(seconds >= 7 for seconds in slept[1:])


def test_rows_that_say_less_do_not_undo_rows_that_say_more(tmp_path: Path) -> None:
    database = ContainerDatabase(tmp_path / "c.db")
    assert database.merge([ObjectRow("o", T2, 1), ObjectRow("o", T1, 9), ObjectRow("p", T1, deleted=True)]) == 2
    digest = database.state().digest
    assert database.merge([ObjectRow("o", T1, 9), ObjectRow("o", T2, 1)]) == 0
    assert database.state().digest == digest
    assert (database.stat().object_count, database.stat().bytes_used) == (1, 1)
    database.close()
